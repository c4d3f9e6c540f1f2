"""What submitit's executors for PBS and Grid Engine have in common: both submit with qsub, ask qstat and cancel with qdel."""

from submitit_qsub.executor import QsubExecutor
from submitit_qsub.job import QsubJob
from submitit_qsub.parameters import Parameters
from submitit_qsub.watcher import Info, NoAnswerError, QsubInfoWatcher

__all__ = ["Info", "NoAnswerError", "Parameters", "QsubExecutor", "QsubInfoWatcher", "QsubJob"]
