"""The state of any number of jobs from one qstat."""

from __future__ import annotations

import subprocess
import time
from typing import ClassVar

from submitit.core import core, logger
from submitit.core.utils import JobPaths

Info = dict[str, str]
ANSWER_S = 60
"""How long a query may take."""
DELETED = {"State": "CANCELLED", "Reason": "deleted"}


class QsubInfoWatcher(core.InfoWatcher):
    """A subclass says how to ask qstat (`_make_command`) and what its answer means (`read_info`)."""

    unknown_s = 60
    """How long a job is waited for that the scheduler says nothing of."""
    unknown: ClassVar[Info]
    """The end of such a job."""

    def __init__(self, delay_s: int = 60) -> None:
        super().__init__(delay_s)
        self._paths: dict[str, JobPaths] = {}
        self._missing_since: dict[str, float] = {}
        self.cancelled: set[str] = set()
        """Jobs that were deleted from here, or are being deleted."""

    def register_job(self, job_id: str, paths: JobPaths | None = None) -> None:
        super().register_job(job_id)
        self._paths[job_id] = paths or self._paths.get(job_id) or JobPaths(".", job_id)

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode=mode).get("State", "UNKNOWN")

    def _without_record(self, job_id: str) -> Info:
        """Of a job that the scheduler says nothing of: neither that it waits or runs, nor how it ended."""
        if self._paths[job_id].result_pickle.exists():
            return {"JobID": job_id, "State": "COMPLETED", "Reason": ""}
        if job_id in self.cancelled:
            return {"JobID": job_id, **DELETED}
        now = time.monotonic()
        if now - self._missing_since.setdefault(job_id, now) < self.unknown_s:
            return {"JobID": job_id, "State": "COMPLETING"}
        return {"JobID": job_id, **self.unknown}


def ask(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """What a query prints; None, with a warning, where it cannot be made."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.get_logger().warning(f"{command[0]}: {error}")
        return None
