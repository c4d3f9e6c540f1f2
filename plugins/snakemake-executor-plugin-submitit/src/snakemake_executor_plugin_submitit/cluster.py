"""A cluster behind a submitit executor: programs, parameters, states and how to cancel."""

import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from snakemake_interface_common.exceptions import WorkflowError
from submitit.core import core, plugins, utils

from .resources import Allocation
from .results import read_results
from .settings import ExecutorSettings, parse_options

CANCEL_BATCH = 500
GENERIC = frozenset(
    [
        "name",
        "timeout_min",
        "mem_gb",
        "nodes",
        "cpus_per_task",
        "gpus_per_node",
        "tasks_per_node",
        "stderr_to_stdout",
    ]
)
"""submitit's parameters that every executor translates."""

TAGS = ("%j", "%t", "%A", "%a")
"""What submitit replaces in every path below its folder."""


@dataclass(frozen=True)
class JobState:
    """A job in the scheduler's eyes."""

    known: bool
    """Not: it answered, and said nothing of this job."""
    ended: bool
    killed: bool
    """It ended by the scheduler's doing, so that no result will come."""
    words: str
    remedy: str = ""
    """What a person must do before it can run; "": it goes on by itself."""

    @property
    def word(self) -> str:
        return self.words.partition(" ")[0]

    @property
    def active(self) -> bool:
        return self.known and not self.ended


class Cluster:
    """A scheduler behind a submitit executor from a plugin of its own (Grid Engine, PBS)."""

    programs: ClassVar[tuple[str, ...]] = ("qsub", "qstat", "qdel")

    declared: Mapping[str, str]
    """What the workflow names in `envvars:`, which jobs get from the environment of the submission."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self.declared = {}
        self.name = str(settings.cluster)
        self._settings = settings

    @property
    def executor_class(self) -> type[Any]:
        executors = plugins.get_executors()
        if self.name not in executors:
            raise WorkflowError(
                f"submitit does not support the cluster {self.name}: install submitit-{self.name} "
                f"beside Snakemake (in {sys.prefix})."
            )
        return executors[self.name]

    def check_programs(self) -> None:
        missing = [program for program in self.programs if shutil.which(program) is None]
        if missing:
            raise WorkflowError(
                f"--submitit-cluster {self.name} needs {', '.join(missing)}, not found on "
                "PATH: run Snakemake where jobs can be submitted, or choose another cluster."
            )

    def executor(self, folder: Path, allocation: Allocation) -> core.Executor:
        """Raises WorkflowError for an option that neither submitit nor the scheduler has, and for
        text that the submission file cannot hold."""
        check_folder(folder)
        executor = self.executor_class(folder, max_num_timeout=self._settings.max_requeues)
        shared, specific = self._parameters(allocation)
        try:
            executor.update_parameters(**(executor._convert_parameters(shared) | specific))
            executor._make_submission_file_text(executor._submitit_command_str, "0")
        except (ValueError, utils.FailedSubmissionError) as error:
            raise WorkflowError(f"{allocation.name}: {error}") from error
        return executor

    def job(self, folder: Path, job_id: str) -> core.Job[Any]:
        """A job that an earlier workflow submitted."""
        job: core.Job[Any] = self.executor_class.job_class(folder, job_id)
        return job

    def largest_array(self) -> int:
        return self._settings.array_size

    def set_array(self, executor: Any, count: int) -> None:
        """Has the executor write the submission file of so many jobs."""
        executor._array_size = count

    def results(self, jobs: Iterable[core.Job[Any]]) -> dict[str, str | None]:
        return read_results(jobs)

    @property
    def note(self) -> str:
        """What a user should know of the scheduler's answers; "": nothing."""
        return ""

    def query(self) -> None:
        """Asks for the states of all jobs at once. Raises ConnectionError where the scheduler gives no whole
        answer: nothing follows from it for any job."""
        self.executor_class.job_class.watcher.ask()

    def forget(self, job_id: str) -> None:
        """Leaves the job out of the queries to come."""
        self.executor_class.job_class.watcher.forget(job_id)

    def state(self, job: core.Job[Any]) -> JobState:
        """As of the last query."""
        watcher = job.watcher
        info = watcher.get_info(job.job_id, mode="cache")
        word = watcher.get_state(job.job_id, mode="cache")
        reason = info.get("Reason", "")
        ended = watcher.is_done(job.job_id, mode="cache")
        return JobState(
            known=bool(info),
            ended=ended,
            killed=bool(reason) and ended,
            words=f"{word} ({reason})" if reason else word,
            remedy=info.get("Remedy", ""),
        )

    def clear(self, job: core.Job[Any]) -> None:
        """Takes what is left of a job that failed without a result out of the queue."""

    def cancel(self, jobs: Sequence[core.Job[Any]]) -> list[str]:
        """Cancels in few commands; what went wrong, if anything."""
        errors = []
        remaining = iter(jobs)
        while batch := list(itertools.islice(remaining, CANCEL_BATCH)):
            try:
                self.executor_class.job_class.cancel_jobs(batch)
            except (subprocess.SubprocessError, OSError) as error:
                errors.append(str(getattr(error, "stderr", None) or error).strip())
        return errors

    def _parameters(self, allocation: Allocation) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters that all executors know, and those of this one."""
        given = parse_options(allocation.options, f"options of {allocation.name}")
        options = {key.removeprefix(f"{self.name}_"): value for key, value in given.items()}
        generic = {key: options.pop(key) for key in GENERIC & options.keys()}
        shared = _shared(allocation) | generic
        return shared, self._specific(allocation) | self._checked(options, allocation.name)

    def _specific(self, allocation: Allocation) -> dict[str, Any]:
        specific = {
            "queue": allocation.queue,
            "account": allocation.account,
            "stop_seconds": allocation.stop_seconds,
            "processes_per_node": allocation.tasks_per_node,
        }
        return {key: value for key, value in specific.items() if value is not None}

    def _checked(self, options: dict[str, Any], job: str) -> dict[str, Any]:
        valid = self.executor_class._valid_parameters()
        unknown = sorted(options.keys() - valid)
        if unknown:
            raise WorkflowError(
                f"{job}: {self.name} has no option {', '.join(unknown)}. "
                f"It has {', '.join(sorted(valid))}."
            )
        return options


def check_folder(folder: Path) -> None:
    """Raises WorkflowError where submitit would take a part of the path for an id of the job."""
    for tag in TAGS:
        if tag in str(folder):
            raise WorkflowError(
                f"--submitit-folder is {str(folder)!r}: submitit replaces {tag} by the id of the job, "
                f"so files would be elsewhere. Name a folder without {tag}, or move the workflow."
            )


def _shared(allocation: Allocation) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "name": allocation.name,
        "timeout_min": allocation.runtime_min,
        "nodes": allocation.nodes,
        "cpus_per_task": allocation.cpus_per_task,
    }
    if allocation.memory_mb_per_node:
        shared["mem_gb"] = allocation.memory_mb_per_node / 1024
    if allocation.gpus_per_node:
        shared["gpus_per_node"] = allocation.gpus_per_node
    return shared
