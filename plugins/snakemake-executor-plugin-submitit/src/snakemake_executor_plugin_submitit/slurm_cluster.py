"""Slurm: sbatch without srun, options that submitit does not know, and endings in sacct's words."""

import sys
from typing import Any

from submitit.core import core

from . import slurm
from .cluster import Cluster, JobState
from .resources import Allocation


class Slurm(Cluster):
    programs = ("sbatch", "sacct", "squeue", "scancel", "scontrol")

    @property
    def executor_class(self) -> type[Any]:
        return slurm.SlurmExecutor

    def largest_array(self) -> int:
        if self._limit is None:
            self._limit = min(self._settings.array_size, slurm.largest_array())
        return self._limit

    def state(self, job: core.Job[Any]) -> JobState:
        info = job.watcher.get_info(job.job_id, mode="cache")
        state = super().state(job)
        if not state.ended:
            return state
        log = slurm.daemon_words(job.paths.stderr)
        return JobState(True, True, slurm.was_killed(info), slurm.ending_words(info, log))

    def still_queued(self, job_ids: list[str]) -> set[str]:
        return slurm.still_queued(job_ids)

    def _specific(self, allocation: Allocation) -> dict[str, Any]:
        additional = {"signal": f"B:USR2@{allocation.stop_seconds}", "requeue": True}
        if allocation.memory_mb_per_node == 0:
            additional["mem"] = 0
        specific = {
            "partition": allocation.queue,
            "account": allocation.account,
            "use_srun": False,
            "array_parallelism": sys.maxsize,  # Snakemake's --jobs is the limit
            "additional_parameters": additional,
        }
        return {key: value for key, value in specific.items() if value is not None}

    def _parameters(self, allocation: Allocation) -> tuple[dict[str, Any], dict[str, Any]]:
        """An option that submitit does not know is one of sbatch."""
        shared, specific = super()._parameters(allocation)
        valid = self.executor_class._valid_parameters()
        further = {key: specific.pop(key) for key in specific.keys() - valid}
        specific["additional_parameters"] = specific["additional_parameters"] | further
        return shared, specific

    def _checked(self, options: dict[str, Any], job: str) -> dict[str, Any]:
        return options
