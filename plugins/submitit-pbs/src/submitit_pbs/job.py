"""A job of PBS, seen from where it was submitted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from submitit.core import core
from submitit.core.core import R

from submitit_pbs.follow_on import current_id
from submitit_pbs.watcher import PbsInfoWatcher


class PbsJob(core.Job[R]):
    _cancel_command = "qdel"
    watcher = PbsInfoWatcher()

    def _register_in_watcher(self) -> None:
        self.watcher.register_job(self.job_id, self.paths)

    def cancel(self, check: bool = True) -> None:
        """Delete the job. `check`: raise CalledProcessError if qdel cannot."""
        self.cancel_jobs([self], check=check)

    @classmethod
    def cancel_jobs(cls, jobs: Iterable[core.Job[R]], check: bool = True) -> None:
        """Delete any number of jobs and subjobs with one qdel."""
        if not (jobs := list(jobs)):
            return
        subprocess.run([cls._cancel_command, *(current_id(job.paths) for job in jobs)], check=check)
        cls.watcher.cancelled.update(job.job_id for job in jobs)
