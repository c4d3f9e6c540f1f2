"""Submitting: jobs of one shape as arrays, with patience for a scheduler that is busy.

A thread of its own submits, so that Snakemake's scheduler is not held up by a slow one.
"""

import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from submitit.core.core import Job

from . import refusals
from .cluster import Cluster
from .command import NestedCommand
from .registry import Identity
from .resources import Allocation

RETRY_SECONDS = (2, 4, 8, 16, 32, 60, 60, 60)
LIMIT_SECONDS = 30
"""Between two tries while the user has as many jobs as the site allows."""
REFUSED_SECONDS = 600
"""How long a refused shape is not asked for again: sites change."""

DETACH = "setsid"
SUBMISSION_ERRORS = (RuntimeError, OSError, ValueError, subprocess.SubprocessError, WorkflowError)


@dataclass(frozen=True)
class Request:
    """A job that is ready, and everything to submit it with."""

    job: JobExecutorInterface
    allocation: Allocation
    command: NestedCommand
    identity: Identity


class StoppedError(Exception):
    """The workflow was cancelled while a submission waited for its next attempt."""


class Submitter:
    """Submits what is put into its queue; reports every job as submitted or failed."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        logger: LoggerExecutorInterface,
        *,
        take_back: Callable[[list[Request]], list[Request]],
        on_submitted: Callable[[Sequence[tuple[Request, Job[Any]]]], None],
        on_failed: Callable[[Request, str], None],
        on_crash: Callable[[Exception], None],
        open_jobs: Callable[[], int] = lambda: 0,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._logger = logger
        self._take_back = take_back
        self._on_submitted = on_submitted
        self._on_failed = on_failed
        self._on_crash = on_crash
        self._open_jobs = open_jobs
        self._refused: dict[Allocation, tuple[float, str]] = {}
        """Shapes that were refused for good: when, and in which words."""
        self._told_limit = False
        self._retry_seconds = retry_seconds
        self._queue: queue.SimpleQueue[list[Request] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="submitter", daemon=True)
        self.submissions = 0
        """Commands that the scheduler accepted, each a job or an array."""

    def start(self) -> None:
        self._thread.start()

    def submit(self, requests: list[Request]) -> None:
        self._queue.put(requests)

    def stop(self) -> None:
        """Drops what waits; returns when nothing is submitted any more."""
        self._stopped.set()
        self._queue.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while (requests := self._next()) is not None:
                requests = self._take_back(requests)
                for chunk in chunks(requests, self._cluster.largest_array()):
                    self._submit_alike(chunk)
        except StoppedError:
            return
        except Exception as error:  # noqa: BLE001 (Snakemake's main thread must learn of any)
            self._on_crash(error)

    def _next(self) -> list[Request] | None:
        """All that waits by now, so that jobs which became ready one by one share an array."""
        requests = self._queue.get()
        while requests is not None and not self._queue.empty():
            more = self._queue.get()
            requests = None if more is None else requests + more
        return None if self._stopped.is_set() else requests

    def _submit_alike(self, requests: list[Request]) -> None:
        """As one array. In parts where a limit asks for it; one by one where an array is refused. A shape of
        which not even one job is taken is not asked for again."""
        if words := self._remembered_refusal(requests[0].allocation):
            self._fail(requests, words)
            return
        left, size, one_by_one = requests, len(requests), False
        idle_waits = iter(self._retry_seconds)
        while left:
            part = left[:size]
            try:
                jobs = self._attempt(part)
            except SUBMISSION_ERRORS as error:
                if self._may_fit_later(part, error, idle_waits):
                    size = max(1, len(part) // 2)
                elif len(part) > 1:
                    size, one_by_one = 1, True
                    self._logger.warning(
                        f"Submitting {len(part)} jobs of {part[0].allocation.name} as an array "
                        f"failed, trying them one by one: {failure_words(error)}"
                    )
                else:
                    refused = left if left is requests else part
                    self._refuse(refused, error, remember=left is requests)
                    left = left[len(refused) :]
            else:
                self.submissions += 1
                self._on_submitted(list(zip(part, jobs, strict=True)))
                left = left[size:]
                size = 1 if one_by_one else 2 * size

    def _may_fit_later(
        self, part: list[Request], error: Exception, idle_waits: Iterator[float]
    ) -> bool:
        """Whether fewer jobs may be within a limit of the site, or a single one after the wait that this makes."""
        if not refusals.is_limit(str(error)):
            return False
        return len(part) > 1 or self._wait_for_room(error, idle_waits)

    def _wait_for_room(self, error: Exception, idle_waits: Iterator[float]) -> bool:
        """While the user has as many jobs as the site allows: until one of this workflow may have ended. False
        where there is none of it to wait for, and patience has ended."""
        seconds = LIMIT_SECONDS if self._open_jobs() else next(idle_waits, None)
        if seconds is not None and not self._told_limit:
            self._told_limit = True
            self._logger.warning(
                f"{self._cluster.name} accepts no more of your jobs now, with {self._open_jobs()} of this workflow "
                f"submitted: {failure_words(error)}. Waiting until some have ended. To avoid this, set `--jobs` below the "
                "site's limit."
            )
        if seconds is not None and self._stopped.wait(seconds):
            raise StoppedError
        return seconds is not None

    def _remembered_refusal(self, allocation: Allocation) -> str:
        refused_at, words = self._refused.get(allocation, (0.0, ""))
        return words if time.monotonic() - refused_at < REFUSED_SECONDS else ""

    def _refuse(self, requests: list[Request], error: Exception, *, remember: bool) -> None:
        lasts = not (refusals.is_passing(str(error)) or refusals.is_limit(str(error)))
        if remember and lasts:
            self._refused[requests[0].allocation] = (time.monotonic(), failure_words(error))
        self._fail(requests, failure_words(error))

    def _fail(self, requests: list[Request], words: str) -> None:
        for request in requests:
            self._on_failed(request, words)

    def _attempt(self, requests: list[Request]) -> list[Job[Any]]:
        """Raises one of SUBMISSION_ERRORS when the scheduler refuses for good, or because of a limit."""
        for seconds in self._retry_seconds:
            if self._stopped.is_set():
                raise StoppedError
            try:
                return self._submit_now(requests)
            except SUBMISSION_ERRORS as error:
                if not refusals.is_passing(str(error)):
                    raise
                self._logger.warning(
                    f"{self._cluster.name} rejected a submission; next attempt in "
                    f"{seconds:g} s: {failure_words(error)}"
                )
            if self._stopped.wait(seconds):
                raise StoppedError
        return self._submit_now(requests)

    def _submit_now(self, requests: list[Request]) -> list[Job[Any]]:
        executor = self._cluster.executor(self._folder, requests[0].allocation)
        _detach(executor)
        return list(executor.submit_array([request.command for request in requests]))


def chunks(requests: Iterable[Request], size: int) -> Iterator[list[Request]]:
    """Requests of one shape each, at most `size` of them, in the order in which they came."""
    shapes: dict[Allocation, list[Request]] = {}
    for request in requests:
        shapes.setdefault(request.allocation, []).append(request)
    for alike in shapes.values():
        remaining = iter(alike)
        while chunk := list(islice(remaining, size)):
            yield chunk


def failure_words(error: BaseException) -> str:
    """The scheduler's own words, and the command that it refused where there was one."""
    words = str(error).strip() or type(error).__name__
    command = error.__cause__
    if isinstance(command, subprocess.CalledProcessError):
        line = " ".join(word for word in command.cmd if word != DETACH)
        return f"{words} (exit status {command.returncode} of: {line})"
    return words


def _detach(executor: Any) -> None:
    """Runs the submitting program in a session of its own: Ctrl-C in a terminal reaches every
    process there, and would end an sbatch that has just submitted a job, so that nobody would
    learn its id."""
    make = getattr(executor, "_make_submission_command", None)
    if make is not None and shutil.which(DETACH):
        executor._make_submission_command = lambda path: [DETACH, *make(path)]
