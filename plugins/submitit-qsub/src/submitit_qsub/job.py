"""A job, seen from where it was submitted."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable

from submitit.core import core
from submitit.core.core import R

from submitit_qsub.watcher import QsubInfoWatcher

CANCEL_S = 120
"""How long qdel may take."""


class QsubJob(core.Job[R], ABC):
    _cancel_command = "qdel"
    watcher: QsubInfoWatcher

    def _register_in_watcher(self) -> None:
        self.watcher.register_job(self.job_id, self.paths)

    @abstractmethod
    def scheduler_id(self) -> str:
        """The id that the commands of the scheduler take."""

    def cancel(self, check: bool = True) -> None:
        """Delete the job. `check`: raise CalledProcessError if qdel cannot."""
        self.cancel_jobs([self], check=check)

    @classmethod
    def cancel_jobs(cls, jobs: Iterable[QsubJob[R]], check: bool = True) -> None:
        """Delete any number of jobs, also of arrays, with one qdel."""
        if not (jobs := list(jobs)):
            return
        command = [cls._cancel_command, *(job.scheduler_id() for job in jobs)]
        subprocess.run(command, check=check, stdout=subprocess.DEVNULL, timeout=CANCEL_S)
        cls.watcher.cancelled.update(job.job_id for job in jobs)
