"""A job, seen from where it was submitted."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from submitit.core import core
from submitit.core.core import R

from submitit_qsub.watcher import QsubInfoWatcher

ANSWER_S = 120
"""How long a command that changes jobs may take."""


class QsubJob(core.Job[R], ABC):
    _cancel_command = "qdel"
    _interrupt_command: ClassVar[tuple[str, ...]]
    """Tells a job to stop and to come back."""
    watcher: QsubInfoWatcher

    def _register_in_watcher(self) -> None:
        self.watcher.register_job(self.job_id, self.paths)

    @abstractmethod
    def scheduler_id(self) -> str:
        """The id that the commands of the scheduler take."""

    def _interrupt(self, timeout: bool = False) -> None:
        """Has the job save its state and run again, as submitit's job of Slurm. By its time the job itself decides whether this
        counts as its time limit, so `timeout` changes nothing."""
        _run([*self._interrupt_command, self.scheduler_id()])

    def cancel(self, check: bool = True) -> None:
        """Delete the job. `check`: raise CalledProcessError if qdel cannot."""
        self.cancel_jobs([self], check=check)

    @classmethod
    def cancel_jobs(cls, jobs: Iterable[QsubJob[R]], check: bool = True) -> None:
        """Delete any number of jobs, also of arrays, with one qdel."""
        if not (jobs := list(jobs)):
            return
        _run([cls._cancel_command, *(job.scheduler_id() for job in jobs)], check=check)
        cls.watcher.cancelled.update(job.job_id for job in jobs)


def _run(command: list[str], check: bool = True) -> None:
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL, timeout=ANSWER_S)
