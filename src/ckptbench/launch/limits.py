"""When a run is ended that does not end by itself: stop requests, its own limits, and the time that its ranks have."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from ckptbench.common.errors import LaunchError
from ckptbench.common.processes import is_orphan
from ckptbench.launch.child_process import Group
from ckptbench.run.control.ranks import RankAssignment

COME_UP_SECONDS = 300.0
STOP_SECONDS = 600.0
PART_SECONDS = 60.0
"""Time that processes may take to end after every rank has said goodbye."""
HASTY_PART_SECONDS = 10.0
"""The same after a stop signal: the scheduler will soon kill the job, and the seal must be written."""
NAMED_RANKS = 12
"""How many of the ranks that did not come up an error names."""


# SIGTERM: scancel, qdel, pre-emption. SIGUSR1: Grid Engine's suspension. SIGUSR2: submitit, Grid Engine's -notify.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(slots=True)
class StopRequest:
    """Whether this process has been asked to stop."""

    signal: str | None = None
    """The name of the first stop signal. None: no signal has come."""


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within this context a stop signal does not end the process: it is noted in the StopRequest."""
    request = StopRequest()

    def note(number: int, _: FrameType | None) -> None:
        request.signal = request.signal or signal.Signals(number).name

    before = {number: signal.signal(number, note) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end a run that does not end by itself. All attempts at a run share one object."""

    timeout_seconds: float | None = None
    stop: StopRequest = field(default_factory=StopRequest)
    started: float = field(default_factory=time.monotonic)
    """Monotonic time at which the run began, in seconds."""
    patience_s: float | None = None
    """A rank that has not answered for so long is lost. None: ranks are not asked."""
    grace_s: float = 3.0
    """How long the launcher waits for the exit status of a rank that hung up, which says more."""
    parent: int = field(default_factory=os.getppid)
    """Id of the process that started the launcher. When that process is gone, the run is ended."""


class Deadlines:
    """Checks whether ranks take too long to come up, to train, to stop or to end. Errors quote the last lines of the logs."""

    def __init__(self, limits: Limits, group: Group) -> None:
        self._limits = limits
        self._group = group
        self._started = time.monotonic()
        self._asked_to_stop: float | None = None
        self._parted_since: float | None = None

    def begin_anew(self) -> None:
        """All ranks are started anew: give them the whole time to come up."""
        self._started = time.monotonic()
        self._parted_since = None

    def raise_if_too_late(self) -> None:
        """Raises LaunchError if the run takes longer than it may, unless its ranks have parted, or if its workflow is gone."""
        if self._parted_since is not None:
            return
        seconds = self._limits.timeout_seconds
        if seconds is not None and time.monotonic() - self._limits.started > seconds:
            raise LaunchError(
                f"the run took longer than its {seconds:g} s (limits.run_minutes); last lines:\n{self._group.tails()}"
            )
        if is_orphan(self._limits.parent):
            raise LaunchError("the workflow that started this run is gone: the run was stopped")

    def begins_to_stop(self) -> bool:
        """Whether to ask the ranks to stop now: once, after a stop signal."""
        if not self._limits.stop.signal or self._asked_to_stop is not None:
            return False
        self._asked_to_stop = time.monotonic()
        return True

    def raise_if_not_stopped(self) -> None:
        """Raises LaunchError if the ranks were asked to stop too long ago."""
        if self._asked_to_stop and time.monotonic() - self._asked_to_stop > STOP_SECONDS:
            raise LaunchError(
                f"the ranks did not stop within {STOP_SECONDS:.0f} s; last lines:\n{self._group.tails()}"
            )

    def raise_if_not_up(self, missing: Sequence[RankAssignment]) -> None:
        """Raises LaunchError if ranks are still `missing` when all should have come up."""
        if missing and time.monotonic() - self._started > COME_UP_SECONDS:
            who = ", ".join(
                f"{assignment.rank} ({assignment.node})" for assignment in missing[:NAMED_RANKS]
            )
            raise LaunchError(
                f"{len(missing)} ranks did not come up within {COME_UP_SECONDS:.0f} s: {who}; last lines:\n"
                f"{self._group.tails()}"
            )

    def lingers(self) -> float | None:
        """Whether processes have run for too long since all ranks said goodbye: the seconds that they had; None if not.

        Call it only when all ranks have.
        """
        self._parted_since = self._parted_since or time.monotonic()
        patience = HASTY_PART_SECONDS if self._limits.stop.signal else PART_SECONDS
        return None if time.monotonic() - self._parted_since < patience else patience
