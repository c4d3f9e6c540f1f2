"""Submitting: jobs of one shape as arrays, with patience for a scheduler that is busy.

A thread of its own submits, so that Snakemake's scheduler is not held up by a slow one.
"""

import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from submitit.core.core import Job

from .cluster import Cluster
from .command import NestedCommand
from .registry import Identity
from .resources import Allocation

RETRY_SECONDS = (2, 4, 8, 16, 32, 60, 60, 60)
TRANSIENT = re.compile(
    r"socket timed out|unable to contact slurm controller|resource temporarily unavailable"
    r"|zero bytes were transmitted|backup controller in standby|slurm temporarily unable"
    r"|unexpected message received|connection (refused|reset|timed out)"
    r"|unable to contact qmaster|can't connect to service|commlib error|got select timeout"
    r"|failed receiving gdi request|unable to send message to qmaster"
    r"|cannot connect to server|communication failure|pbs_iff|end of file|timed? ?out",
    re.IGNORECASE,
)
"""What schedulers say when the same submission may succeed a little later."""

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
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._logger = logger
        self._take_back = take_back
        self._on_submitted = on_submitted
        self._on_failed = on_failed
        self._on_crash = on_crash
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
                    self._submit_chunk(chunk)
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

    def _submit_chunk(self, requests: list[Request]) -> None:
        """As an array if there are several; one by one where that fails."""
        try:
            jobs = self._attempt(requests)
        except SUBMISSION_ERRORS as error:
            if len(requests) == 1:
                self._on_failed(requests[0], failure_words(error))
                return
            self._logger.warning(
                f"Submitting {len(requests)} jobs of {requests[0].allocation.name} as an array "
                f"failed, trying them one by one: {failure_words(error)}"
            )
            for request in requests:
                self._submit_chunk([request])
        else:
            self.submissions += 1
            self._on_submitted(list(zip(requests, jobs, strict=True)))

    def _attempt(self, requests: list[Request]) -> list[Job[Any]]:
        """Raises one of SUBMISSION_ERRORS when the scheduler refuses for good."""
        for seconds in self._retry_seconds:
            if self._stopped.is_set():
                raise StoppedError
            try:
                return self._submit_now(requests)
            except SUBMISSION_ERRORS as error:
                if not TRANSIENT.search(failure_words(error)):
                    raise
                self._logger.warning(
                    f"{self._cluster.name} did not take a submission, trying again in "
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
