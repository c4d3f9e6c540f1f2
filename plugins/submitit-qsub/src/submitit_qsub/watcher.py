"""The state of any number of jobs from one qstat."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from typing import ClassVar

from submitit.core import core, logger
from submitit.core.utils import JobPaths

Info = dict[str, str]
ANSWER_S = 60
"""How long a query may take."""
SILENCE_S = 600
"""How long answers may leave out a job, without the word that it is gone, before it counts as gone."""
DELETED = {"State": "CANCELLED", "Reason": "deleted"}


class NoAnswerError(ConnectionError):
    """The scheduler did not answer, or with words that cannot be read: nothing follows for any job."""


class QsubInfoWatcher(core.InfoWatcher, ABC):
    """A subclass says how to look at the jobs of interest (`_look`)."""

    unknown_s = 60
    """How long a job is waited for of which the scheduler says that it is gone."""
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

    def forget(self, job_id: str) -> None:
        """Leaves the job out of the queries to come."""
        self._registered.discard(job_id)

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode=mode).get("State", "UNKNOWN")

    def update(self) -> None:
        """As `ask`, with a warning where there is no answer."""
        try:
            self.ask()
        except NoAnswerError as error:
            logger.get_logger().warning(str(error))

    def ask(self) -> None:
        """Looks once at all jobs that are not known to have ended. Raises NoAnswerError, and then leaves all
        states as they are."""
        if not (asked := self._registered - self._finished):
            return
        self._num_calls += 1
        self._last_status_check = time.time()
        try:
            infos = self._look(asked)
        except NoAnswerError:
            self._missing_since.clear()
            raise
        self._info_dict.update(infos)
        self._finished.update(job_id for job_id in asked if self.is_done(job_id, mode="cache"))

    @abstractmethod
    def _look(self, asked: set[str]) -> dict[str, Info]:
        """What the scheduler says of these jobs. Raises NoAnswerError."""

    def _without_record(self, job_id: str, patience_s: float | None = None) -> Info:
        """Of a job that the scheduler says nothing of: neither that it waits or runs, nor how it ended."""
        if self._paths[job_id].result_pickle.exists():
            return {"JobID": job_id, "State": "COMPLETED", "Reason": ""}
        if job_id in self.cancelled:
            return {"JobID": job_id, **DELETED}
        now = time.monotonic()
        missing_s = now - self._missing_since.setdefault(job_id, now)
        if missing_s < (self.unknown_s if patience_s is None else patience_s):
            return {"JobID": job_id, "State": "COMPLETING"}
        return {"JobID": job_id, **self.unknown}


def answer(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What a query prints. Raises NoAnswerError where it cannot be made, or takes too long."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",  # names of jobs and comments of another encoding are not ours to judge
            check=False,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswerError(f"{command[0]} did not answer: {error}") from error
