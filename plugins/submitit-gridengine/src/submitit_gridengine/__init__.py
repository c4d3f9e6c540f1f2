"""A submitit executor for Grid Engine: `submitit.AutoExecutor(folder, cluster="gridengine")`."""

from submitit_gridengine.environment import GridEngineJobEnvironment
from submitit_gridengine.executor import GridEngineExecutor, GridEngineJob
from submitit_gridengine.watcher import GridEngineInfoWatcher

__all__ = [
    "GridEngineExecutor",
    "GridEngineInfoWatcher",
    "GridEngineJob",
    "GridEngineJobEnvironment",
]
