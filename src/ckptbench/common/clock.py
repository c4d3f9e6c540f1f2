"""The clock of all measured times: CLOCK_MONOTONIC, in nanoseconds, the same for all processes of a host.

The time of day is that clock and an offset. A process reads the wall clock once for it, and takes over the offset of the
process that has started it. So a wall clock that is set while a run goes on changes neither a duration nor the order of
two events on one host.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

clock = time.monotonic_ns


def boot_id() -> str:
    """Identifier of this host and its boot. Two processes with the same one share a monotonic clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class _Day:
    """The offset of this process."""

    offset_ns = time.time_ns() - clock()


def day_ns(at_ns: int | None = None) -> int:
    """The time of day in ns since 1970: now, or at `at_ns` of the monotonic clock."""
    return (clock() if at_ns is None else at_ns) + _Day.offset_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A point in time, as a process tells others. Times are in ns."""

    boot: str
    """Of its host, as `boot_id` says."""
    monotonic_ns: int
    wall_ns: int
    """What the wall clock showed, which may have been set since the process began."""
    day_ns: int
    """The process's time of day."""

    @classmethod
    def now(cls) -> Self:
        at_ns = clock()
        return cls(boot=boot_id(), monotonic_ns=at_ns, wall_ns=time.time_ns(), day_ns=day_ns(at_ns))

    @classmethod
    def read(cls, text: str) -> Self:
        """The inverse of `str`. Raises ValueError for another text."""
        boot, *times = text.split()
        monotonic_ns, wall_ns, own_day_ns = map(int, times)
        return cls(boot=boot, monotonic_ns=monotonic_ns, wall_ns=wall_ns, day_ns=own_day_ns)

    def __str__(self) -> str:
        return f"{self.boot} {self.monotonic_ns} {self.wall_ns} {self.day_ns}"

    def seconds_to(self, later: Instant) -> float | None:
        """Seconds until `later`. Between two boots or hosts only the wall clocks tell; None where they say that it was earlier."""
        if self.boot == later.boot:
            return (later.monotonic_ns - self.monotonic_ns) / 1e9
        seconds = (later.day_ns - self.day_ns) / 1e9
        return seconds if seconds >= 0 else None


def follow(told: Instant) -> None:
    """Take over the time of day of the process that has `told` this instant.

    On another host only the wall clock is common: it is taken to have been set there as it was here.
    """
    if told.boot == boot_id():
        _Day.offset_ns = told.day_ns - told.monotonic_ns
    else:
        _Day.offset_ns = time.time_ns() - clock() + told.day_ns - told.wall_ns
