"""Which cluster a setting names, and those that are small: Grid Engine, and this machine without a scheduler."""

from collections.abc import Mapping, Sequence
from typing import Any

import psutil
from snakemake_interface_common.exceptions import WorkflowError
from submitit.core import core
from submitit.local import local

from . import processes
from .cluster import Cluster, JobState
from .requeues import Requeue
from .resources import Allocation
from .settings import ExecutorSettings
from .slurm import Slurm
from .slurm_states import output


class GridEngine(Cluster):
    programs = ("qsub", "qstat", "qdel", "qacct")

    def clear(self, job: core.Job[Any]) -> None:
        """A job in an error state waits for its deletion."""
        self.cancel([job])


class Pbs(Cluster):
    programs = ("qsub", "qstat", "qdel", "pbsnodes")

    def requeues(self, jobs: Mapping[str, str]) -> dict[str, Requeue]:
        """PBS sends a job back when its first node is lost."""
        try:
            listed = output(["pbsnodes", "-l"])
        except ConnectionError:
            return {}
        rows = (line.split() for line in listed.splitlines())
        down = {row[0] for row in rows if len(row) > 1 and "down" in row[1].split(",")}
        lost = {job_id: down.intersection(_hosts(nodes)) for job_id, nodes in jobs.items()}
        return {
            job_id: Requeue("lost", (*sorted(nodes),)) for job_id, nodes in lost.items() if nodes
        }


class Local(Cluster):
    """Processes on this machine; they outlive Snakemake's own."""

    programs = ()
    asks_scheduler = False

    @property
    def executor_class(self) -> type[Any]:
        return local.LocalExecutor

    def set_array(self, executor: Any, count: int) -> None:
        """Each process is started by itself."""

    def query(self) -> None:
        return

    def forget(self, job_id: str) -> None:
        return

    def state(self, job: core.Job[Any]) -> JobState:
        running = _runs(job)
        return JobState(known=True, ended=not running, killed=not running, words="process ended")

    def cancel(self, jobs: Sequence[core.Job[Any]]) -> list[str]:
        for job in jobs:
            if _runs(job):
                processes.stop(int(job.job_id), wait_seconds=5, including=True)
        return []

    def _parameters(self, allocation: Allocation) -> tuple[dict[str, Any], dict[str, Any]]:
        if allocation.nodes > 1:
            raise WorkflowError(
                f"{allocation.name}: nodes={allocation.nodes}, but this machine is one node. "
                "Ask for one, or submit to a cluster."
            )
        return super()._parameters(allocation)

    def _specific(self, allocation: Allocation) -> dict[str, Any]:
        return {"signal_delay_s": allocation.stop_seconds}


KINDS: dict[str, type[Cluster]] = {
    "slurm": Slurm,
    "gridengine": GridEngine,
    "pbs": Pbs,
    "local": Local,
}


def cluster(settings: ExecutorSettings) -> Cluster:
    return KINDS.get(str(settings.cluster), Cluster)(settings)


def _hosts(nodes: str) -> list[str]:
    """Of PBS's `exec_host`: `node1/0*2+node2/0`."""
    return [part.partition("/")[0] for part in nodes.split("+")]


def _runs(job: core.Job[Any]) -> bool:
    """Whether the controller process of a local job is there; ids of processes come again."""
    child = getattr(job, "_process", None)
    if child is not None:
        return child.poll() is None
    try:
        words = psutil.Process(int(job.job_id)).cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied, ValueError):
        return False
    return "submitit.local._local" in words and str(job.paths.folder) in words
