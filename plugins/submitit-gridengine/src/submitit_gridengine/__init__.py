"""A submitit executor for Grid Engine: `submitit.AutoExecutor(folder, cluster="gridengine")`."""

from submitit_gridengine.environment import GridEngineJobEnvironment
from submitit_gridengine.executor import GridEngineExecutor
from submitit_gridengine.job import GridEngineJob
from submitit_gridengine.watcher import GridEngineInfoWatcher

__all__ = [
    "GridEngineExecutor",
    "GridEngineInfoWatcher",
    "GridEngineJob",
    "GridEngineJobEnvironment",
]
