"""A job of Grid Engine, seen from where it was submitted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from submitit.core import core
from submitit.core.core import R

from submitit_gridengine.watcher import GridEngineInfoWatcher


class GridEngineJob(core.Job[R]):
    _cancel_command = "qdel"
    watcher = GridEngineInfoWatcher()

    def _register_in_watcher(self) -> None:
        self.watcher.register_job(self.job_id, self.paths)

    def cancel(self, check: bool = True) -> None:
        """Delete the job. `check`: raise CalledProcessError if qdel cannot."""
        self.cancel_jobs([self], check=check)

    @classmethod
    def cancel_jobs(cls, jobs: Iterable[core.Job[R]], check: bool = True) -> None:
        """Delete any number of jobs and tasks of arrays with one qdel."""
        if not (ids := [job.job_id for job in jobs]):
            return
        command = [cls._cancel_command, *(job_id.replace("_", ".") for job_id in ids)]
        subprocess.run(command, check=check, stdout=subprocess.DEVNULL)
        cls.watcher.cancelled.update(ids)
