"""Counts the updates of this process, and keeps the moment of each.

An update is the end of the outermost step of the first optimizer. Others that step in turn with it, as those of a GAN or of one parameter
each, are counted apart. Where it steps no more, the next that steps twice takes its place.
"""

from __future__ import annotations

import threading
import weakref
from time import monotonic_ns
from typing import Any, Callable

from ckptbench_probe.trace import Trace
from ckptbench_probe.variables import seat

WRITTEN_EVERY_NS = 1_000_000_000
"""Moments are kept in memory for so long at most while updates come: what a killed process loses."""
FEWEST_COUNTED = 3
"""Updates whose backward passes are counted, if they come more seldom than moments are written."""
MOST_FLAGS = 4096
"""Flags of a scaler that are kept unread: to read one on a GPU waits for the GPU."""


class Updates:
    """`moments` grows at every update, so this is the one place where nanoseconds count: see `engines.torch_optimizer`."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.moments: list[int] = []
        self.due_ns = 0
        """When they are written next."""
        self.plain = 0
        """Id of the optimizer of whose steps nothing needs to be noted but the moment. 0: none."""
        self.written = 0
        self.backwards = 0
        self.stop_counting: Callable[[], None] | None = None
        """Backward passes are counted until this is called: the ratio to updates is wanted, and to count costs as much as an update."""
        self._counted: int | None = None
        """Updates to which the counted backward passes belong; None: all."""
        self.fired = 0
        """Steps of any optimizer that were not plain."""
        self.thread: int | None = None
        """That steps."""
        self.first_optimizer: Callable[[], Any] = lambda: None
        """Whose steps are updates, as long as it lives."""
        self._scaled = False
        self._by_session = False
        self._first = 0
        self._since: set[int] = set()
        self._skipped: list[int] = []
        self._flags: list[tuple[int, Any]] = []

    @property
    def done(self) -> int:
        return self.written + len(self.moments)

    def of(self, optimizer: Any) -> None:
        """The optimizer has stepped, and its step was not plain."""
        self.fired += 1
        if id(optimizer) != self._first:
            if not self._takes_over(optimizer):
                return
        elif self._since:
            self._since.clear()
        self.settle()
        if self.by_session:
            return
        self.tick()
        flag = getattr(optimizer, "found_inf", None) if self._scaled else None
        if flag is not None:
            self.flag(flag)

    def _takes_over(self, optimizer: object) -> bool:
        key = id(optimizer)
        if self._first and key not in self._since:
            self._since.add(key)
            self.settle()
            return False
        self._first = key
        self._since.clear()
        self.first_optimizer = weakref.ref(optimizer)
        return True

    def settle(self) -> None:
        """Say anew whose steps are plain."""
        special = self._scaled or self.by_session or self._since
        self.plain = 0 if special else self._first

    def scale(self, on: bool) -> None:
        """A scaler calls the step that follows, or has called it."""
        self._scaled = on
        self.settle()

    @property
    def by_session(self) -> bool:
        """Whether the program counts by itself: hooks are silent."""
        return self._by_session

    @by_session.setter
    def by_session(self, on: bool) -> None:
        self._by_session = on
        self.settle()

    def tick(self) -> None:
        now = monotonic_ns()
        self.moments.append(now)
        if now >= self.due_ns:
            self.write_due()

    def write_due(self) -> None:
        self.thread = threading.get_ident()
        self.write()
        if self.stop_counting is not None and self.written > FEWEST_COUNTED:
            self.stop_counting()
            self.stop_counting, self._counted = None, self.written

    def skip(self) -> None:
        """A scaler has left out an update: it counts as a step in time, and is marked."""
        if not self.by_session:
            self._skipped.append(self.done)
            self.tick()

    def flag(self, flag: Any) -> None:
        """Of the last update: a number on the device that is not 0 if it was left out. It is read when nothing waits for it."""
        self._flags.append((self.done - 1, flag))
        if len(self._flags) >= MOST_FLAGS:
            self.read_flags()

    def read_flags(self) -> None:
        flags, self._flags = self._flags, []
        left_out = [index for index, flag in flags if float(flag)]
        if left_out:
            self._trace.queue("skipped", updates=left_out)

    def write(self) -> None:
        """Write the moments to the trace."""
        self.queue()
        self._trace.flush()

    def queue(self) -> None:
        """Hand the moments on to the trace."""
        self.due_ns = monotonic_ns() + WRITTEN_EVERY_NS
        moments, self.moments = self.moments, []
        if not moments:
            return
        first, self.written = self.written, self.written + len(moments)
        skipped, self._skipped = self._skipped, []
        own = seat() if first == 0 else None
        self._trace.queue(
            "updates",
            first=first,
            at_ns=moments[0],
            then_us=[(moment - moments[0]) // 1000 for moment in moments[1:]],
            backwards=self.backwards,
            counted=self.written if self._counted is None else self._counted,
            **({"skipped": skipped} if skipped else {}),
            **({"rank": own.rank, "ranks": own.ranks} if own else {}),
        )

    def renew(self) -> None:
        """In a forked child: what its parent did is not its own."""
        by_session, stop_counting, counted = self.by_session, self.stop_counting, self._counted
        self.__init__(self._trace)  # type: ignore[misc]
        self.stop_counting = stop_counting
        self._counted = None if counted is None else 0
        self.by_session = by_session
