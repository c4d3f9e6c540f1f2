"""Which cluster a setting names."""

from typing import Any

from submitit.core import core

from .cluster import Cluster
from .settings import ExecutorSettings
from .slurm_cluster import Slurm
from .this_machine import Debug, Local


class GridEngine(Cluster):
    programs = ("qsub", "qstat", "qdel", "qacct")

    def clear(self, job: core.Job[Any]) -> None:
        """A job in an error state waits for its deletion."""
        self.cancel([job])


KINDS: dict[str, type[Cluster]] = {
    "slurm": Slurm,
    "gridengine": GridEngine,
    "local": Local,
    "debug": Debug,
}


def cluster(settings: ExecutorSettings) -> Cluster:
    return KINDS.get(str(settings.cluster), Cluster)(settings)
