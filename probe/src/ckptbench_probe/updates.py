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
MOST_FLAGS = 4096
"""Flags of a scaler that are kept unread: to read one on a GPU waits for the GPU."""


class Updates:
    """`moments` grows at every update, so this is the one place where nanoseconds count."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.moments: list[int] = []
        self.written = 0
        self.backwards = 0
        self.fired = 0
        """Steps of any optimizer."""
        self.thread: int | None = None
        """That steps."""
        self.scaled = False
        """Whether a scaler calls the step that is under way."""
        self.by_session = False
        """Whether the program counts by itself: hooks are silent."""
        self.first_optimizer: Callable[[], Any] = lambda: None
        """Whose steps are updates, as long as it lives."""
        self._due_ns = 0
        self._first: int | None = None
        self._since: set[int] = set()
        self._skipped: list[int] = []
        self._flags: list[tuple[int, Any]] = []

    @property
    def done(self) -> int:
        return self.written + len(self.moments)

    def of(self, optimizer: object) -> bool:
        """The optimizer has stepped. Whether that was an update. It holds no more calls than it must: this is what the probe costs a step."""
        self.fired += 1
        if id(optimizer) != self._first:
            if not self._takes_over(optimizer):
                return False
        elif self._since:
            self._since.clear()
        if self.by_session:
            return False
        now = monotonic_ns()
        self.moments.append(now)
        if now >= self._due_ns:
            self._write_due()
        return True

    def _takes_over(self, optimizer: object) -> bool:
        key = id(optimizer)
        if self._first is not None and key not in self._since:
            self._since.add(key)
            return False
        self._first = key
        self._since.clear()
        self.first_optimizer = weakref.ref(optimizer)
        return True

    def tick(self) -> None:
        now = monotonic_ns()
        self.moments.append(now)
        if now >= self._due_ns:
            self._write_due()

    def _write_due(self) -> None:
        self.thread = threading.get_ident()
        self.write()

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
        self._due_ns = monotonic_ns() + WRITTEN_EVERY_NS
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
            fired=self.fired,
            **({"skipped": skipped} if skipped else {}),
            **({"rank": own.rank, "ranks": own.ranks} if own else {}),
        )

    def renew(self) -> None:
        """In a forked child: what its parent did is not its own."""
        by_session, trace = self.by_session, self._trace
        self.__init__(trace)  # type: ignore[misc]
        self.by_session = by_session
