"""The clock of all measured times: CLOCK_MONOTONIC, in nanoseconds, the same for all processes of a host.

The time of day is that clock and an offset, for which a process reads the wall clock once, at its start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

clock = time.monotonic_ns


def _offset_ns() -> int:
    """From the monotonic clock to the time of day, as in the quickest of a few readings: in the others this process had to wait."""
    readings = [(clock(), time.time_ns(), clock()) for _ in range(5)]
    before_ns, day, after_ns = min(readings, key=lambda each: each[2] - each[0])
    return day - (before_ns + after_ns) // 2


OFFSET_NS = _offset_ns()


def boot_id() -> str:
    """Identifier of this host and its boot. Two processes with the same one share a monotonic clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def day_ns(at_ns: int | None = None) -> int:
    """The time of day in ns since 1970: now, or at `at_ns` of the monotonic clock."""
    return (clock() if at_ns is None else at_ns) + OFFSET_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A point in time, as a process tells others. Times are in ns."""

    boot: str
    """Of its host, as `boot_id` says."""
    monotonic_ns: int
    day_ns: int
    """The process's time of day."""

    @classmethod
    def now(cls) -> Self:
        at_ns = clock()
        return cls(boot=boot_id(), monotonic_ns=at_ns, day_ns=day_ns(at_ns))

    @classmethod
    def read(cls, text: str) -> Self:
        """The inverse of `str`. Raises ValueError for another text."""
        boot, *times = text.split()
        monotonic_ns, own_day_ns = map(int, times)
        return cls(boot=boot, monotonic_ns=monotonic_ns, day_ns=own_day_ns)

    def __str__(self) -> str:
        return f"{self.boot} {self.monotonic_ns} {self.day_ns}"

    def seconds_to(self, later: Instant) -> float:
        """Seconds until `later`. Between two boots or hosts the times of day tell, which clusters synchronize."""
        if self.boot == later.boot:
            return (later.monotonic_ns - self.monotonic_ns) / 1e9
        return (later.day_ns - self.day_ns) / 1e9
