"""A submitit executor for PBS Professional: `submitit.AutoExecutor(folder, cluster="pbs")`."""

from submitit_pbs.environment import PbsJobEnvironment
from submitit_pbs.executor import PbsExecutor, PbsJob
from submitit_pbs.watcher import PbsInfoWatcher

__all__ = ["PbsExecutor", "PbsInfoWatcher", "PbsJob", "PbsJobEnvironment"]
