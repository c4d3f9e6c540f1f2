"""Which cluster a setting names, and those that are small: Grid Engine and PBS."""

from typing import Any

from submitit.core import core

from .cluster import Cluster
from .settings import ExecutorSettings
from .slurm import Slurm


class GridEngine(Cluster):
    programs = ("qsub", "qstat", "qdel", "qacct")

    def clear(self, job: core.Job[Any]) -> None:
        """A job in an error state waits for its deletion."""
        self.cancel([job])


KINDS: dict[str, type[Cluster]] = {"slurm": Slurm, "gridengine": GridEngine, "pbs": Cluster}


def cluster(settings: ExecutorSettings) -> Cluster:
    return KINDS[str(settings.cluster)](settings)
