"""A submitit executor for PBS Professional: `submitit.AutoExecutor(folder, cluster="pbs")`."""

from submitit_pbs.environment import PbsJobEnvironment
from submitit_pbs.executor import PbsExecutor
from submitit_pbs.job import PbsJob
from submitit_pbs.watcher import PbsInfoWatcher

__all__ = ["PbsExecutor", "PbsInfoWatcher", "PbsJob", "PbsJobEnvironment"]
