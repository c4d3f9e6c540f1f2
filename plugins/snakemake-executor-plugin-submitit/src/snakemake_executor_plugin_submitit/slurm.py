"""Slurm: submitit's executor for it, changed where a job is one task that owns its whole allocation.

submitit starts the task through srun and expects a result of every task. Here the batch script
becomes the one task: Slurm signals it alone before the limit (`--signal=B:`), and srun is left to
the job itself.
"""

import copy
import dataclasses
import functools
import os
import re
import shlex
import subprocess
import sys
import unicodedata
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from submitit.core import core, utils
from submitit.slurm import slurm

from . import slurm_states as states
from .cluster import Cluster, JobState
from .resources import Allocation

CANCEL_S = 120
"""How long scancel may take."""
DEFAULT_ARRAY_LIMIT = 1000
REFUSED = {
    "time": "set the resource runtime",
    "clusters": "squeue, sacct and scancel would ask another cluster, so run Snakemake where it is the default one",
    "array": "set --submitit-array-size",
    "output": "logs lie in --submitit-folder",
    "error": "logs lie in --submitit-folder",
}
"""Options of sbatch that would be at odds with what is known of the job, and what to do instead."""


class SlurmJob(slurm.SlurmJob[Any]):
    watcher = states.SlurmWatcher(delay_s=600)

    @classmethod
    def cancel_jobs(cls, jobs: Iterable[core.Job[Any]]) -> None:
        """Cancel any number of jobs with one scancel. Raises CalledProcessError with its words, and TimeoutExpired."""
        command = ["scancel", *(job.job_id for job in jobs)]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=CANCEL_S)


class SlurmExecutor(slurm.SlurmExecutor):
    """Submits batch scripts that `exec` Python, one task whatever the nodes and tasks."""

    job_class = SlurmJob

    def __init__(self, folder: Path, max_num_timeout: int = 3) -> None:
        python = f"exec {shlex.quote(sys.executable)}"
        super().__init__(folder, max_num_timeout=max_num_timeout, python=python)

    @classmethod
    def name(cls) -> str:
        return "slurm"

    @classmethod
    def affinity(cls) -> int:
        """srun is not needed to submit, nor any of Slurm to print what would be submitted."""
        return 2

    def _num_tasks(self) -> int:
        return 1

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        """Raises ValueError for text that the file cannot hold."""
        for name, value in self.parameters.items():
            if name != "setup":  # lines of the shell
                _check(value, name)
        folder = pattern(str(self.folder))
        return str(slurm._make_sbatch_string(command=command, folder=folder, **self.parameters))

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """submitit's own arrays are submitted by an executor of its class: without this one's checks, and in the terminal's session,
        where Ctrl-C ends sbatch."""
        if len(delayed_submissions) == 1:
            return super()._internal_process_submissions(delayed_submissions)
        pickles = [self._pickle(delayed) for delayed in delayed_submissions]
        array: Any = copy.copy(self)
        array.parameters = {**self.parameters, "map_count": len(pickles)}
        array.job_class = core.Job  # its jobs are followed, not the array itself
        try:
            number = array._submit_command(self._submitit_command_str).job_id
        except Exception:  # raised again, whatever it is: the pickles alone must not stay
            for pickle in pickles:
                pickle.unlink()
            raise
        jobs = [SlurmJob(self.folder, f"{number}_{index}") for index in range(len(pickles))]
        for job, pickle in zip(jobs, pickles, strict=True):
            job.paths.move_temporary_file(pickle, "submitted_pickle")
        return list(jobs)

    def _pickle(self, delayed: utils.DelayedSubmission) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path: Path = self.folder / f"{uuid.uuid4().hex}.pkl"
        delayed.set_timeout(self.parameters["time"], self.max_num_timeout)
        delayed.dump(path)
        return path


class Slurm(Cluster):
    programs = ("sbatch", "sacct", "squeue", "scancel", "scontrol")

    @property
    def executor_class(self) -> type[Any]:
        return SlurmExecutor

    def largest_array(self) -> int:
        return min(self._settings.array_size, self._limit)

    @functools.cached_property
    def _limit(self) -> int:
        """What the cluster allows: MaxArraySize is one more than the largest index."""
        try:
            config = states.output(["scontrol", "show", "config"])
        except ConnectionError:
            return DEFAULT_ARRAY_LIMIT
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)\s*$", config, re.MULTILINE)
        return max(1, int(found[1])) if found else DEFAULT_ARRAY_LIMIT

    @property
    def note(self) -> str:
        return self.executor_class.job_class.watcher.note

    def state(self, job: core.Job[Any]) -> JobState:
        state = super().state(job)
        if not state.ended:
            return state
        info = job.watcher.get_info(job.job_id, mode="cache")
        return dataclasses.replace(
            state,
            killed=states.is_certain(info) and states.was_killed(info),
            words=states.ending_words(info, states.daemon_words(job.paths.stderr)),
        )

    def set_array(self, executor: Any, count: int) -> None:
        executor.parameters["map_count"] = count

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
        return {key: value for key, value in specific.items() if value is not None} | {
            "wckey": None  # submitit's own would need the right to it
        }

    def _parameters(self, allocation: Allocation) -> tuple[dict[str, Any], dict[str, Any]]:
        """An option that submitit does not know is one of sbatch."""
        shared, specific = super()._parameters(allocation)
        shared.setdefault("tasks_per_node", allocation.tasks_per_node)
        valid = self.executor_class._valid_parameters()
        further = {key: specific.pop(key) for key in specific.keys() - valid}
        further = specific["additional_parameters"] | further
        export = str(further.get("export", os.environ.get("SBATCH_EXPORT", "ALL")))
        if self.declared and not export.upper().startswith("ALL"):
            others = [] if export.upper() in ("NONE", "NIL") else [export]
            further["export"] = ",".join([*others, *self.declared])
        if "no_requeue" in further:
            further.pop("requeue", None)
        if {"mem_per_cpu", "mem_per_gpu"} & specific.keys():
            shared.pop("mem_gb", None)
            further.pop("mem", None)
        return shared, specific | {"additional_parameters": further}

    def _checked(self, options: dict[str, Any], job: str) -> dict[str, Any]:
        """Those that are set: false, null and nothing give no line."""
        for name, remedy in REFUSED.items():
            if name in options:
                raise WorkflowError(
                    f"{job}: {name}={options[name]} is not supported by this executor: {remedy}."
                )
        if options.get("requeue") is False:
            options = options | {"no_requeue": True}
        return {
            key: value
            for key, value in options.items()
            if value is not False and value not in (None, "")
        }


def pattern(path: str) -> str:
    """The path as `--output` and `--error` want it. Raises ValueError for what they cannot name."""
    _check(path, "the folder")
    if "\\" in path:
        raise ValueError(
            f"the folder is {path!r}: with a backslash in --output Slurm does not put the job's id into "
            "names of logs. Use a folder without a backslash."
        )
    return path.replace("%", "%%")


def _check(value: object, place: str) -> None:
    """One `#SBATCH` line for each parameter: quotes protect all characters but those that end a line."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(inner, str(key))
        return
    for character in str(value):
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise ValueError(
                f"{place} is {value!r}: Slurm cannot take the character {character!r}, which begins a "
                "new line or is invisible. Remove it."
            )
