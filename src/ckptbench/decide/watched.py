"""Failures on the clock, and the GPU-hours in which they came.

Failures within one restart of another count as one: training that is down cannot fail again. So the GPU-hours within one restart of a
failure are not at risk either, and what is left is the *time at risk*. (A counter with this dead time, which later failures do not make longer: Knoll,
*Radiation Detection and Measurement*, chapter 4, the non-paralyzable model.)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

RESTART_S = 600.0
"""Failures within so long count as one, unless the user says how long a restart takes. Slurm needs up to 300 s (SlurmdTimeout) to see that a node of a
broken rack is down, and a large job some minutes to start."""
FAILURE_STATES = ("NODE_FAIL", "BOOT_FAIL", "FAILED")
"""Slurm's states of jobs that failed. Every other job is time at risk alone."""
ENDS = (
    *FAILURE_STATES, "CANCELLED", "COMPLETED", "DEADLINE", "LAUNCH_FAILED", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED",
    "RESIZING", "REVOKED", "SPECIAL_EXIT", "STOPPED", "SUSPENDED", "TIMEOUT",
)  # fmt: skip
"""Slurm's states in which a job no longer runs."""
NODES = ("node", "nodes", "nodelist", "host", "hostname")
"""Columns that say where a failure was, in small letters."""
OUTSIDE = "it is not between `from` and `to`: remove the line, or correct them"
MOST_NODES, MOST_LETTERS = 100_000, 20
"""So many nodes of one range are looked at, and numbers of so many letters."""
NODE = re.compile(r"(?:[\w.-]+|\[[\d,-]+\])+")
"""A part of Slurm's list of nodes: `login1`, `gpu[01-03,07]`, or `rack[1-2]n[01-04]`."""
RANGES = re.compile(r"\[([\d,-]+)\]")
RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the file of a log does not say itself."""

    gpus: int | None = None
    begin: float | None = None
    """When the watching began and ended, in seconds."""
    end: float | None = None
    column: str | None = None
    """Of the times. None: COLUMN of a list, `End` of a scheduler's table."""
    states: tuple[str, ...] = FAILURE_STATES
    restart_s: float = RESTART_S

    def spans(self, at_s: pd.Series[float]) -> pd.Series[bool]:
        """Which of these times lie where GPUs were watched."""
        begin = -math.inf if self.begin is None else self.begin
        end = math.inf if self.end is None else self.end
        return (begin < at_s) & (at_s <= end)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The failures of a log, those within one restart of another as one."""

    at_gpu_hours: Floats
    """Shape (failures,), rising: GPU-hours that were watched until each."""
    watched_gpu_hours: float
    risk_gpu_hours: float
    """Watched, but not within one restart of a failure."""
    found: int
    """Failures in the log: those that are merged too, but not the one with which a list begins."""
    worst: tuple[str, int] | None
    """The node with most failures and their number; None where no node stands out, with two at least."""
    is_of_failures_alone: bool = False
    """Whether the log is a table in which every job failed: the time of the others is not in it."""

    @property
    def failures(self) -> int:
        return len(self.at_gpu_hours)


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Failures on the clock, and the GPU-hours that were watched until any time."""

    failed_s: Floats
    clock_s: Floats
    """Shape (points,), rising. Between two points equally many GPUs were watched."""
    gpu_hours: Floats
    """Shape (points,): watched until then; 0 first."""
    nodes: Sequence[str] = ()
    """Of each failure, as the log has it; empty where it says none."""
    is_of_failures_alone: bool = False

    def counted(self, restart_s: float) -> Counted:
        kept: list[float] = []
        for at in sorted(self.failed_s):
            if not kept or at - kept[-1] > restart_s:
                kept.append(at)
        counted = np.array(kept)
        until, up = self._until(counted), self._until(counted + restart_s)
        total = float(self.gpu_hours[-1])
        begin_s = self.clock_s[0]  # the failure with which a list begins is where its time begins
        placed = zip(self.failed_s, self.nodes, strict=False)
        named = Counter(name for at, nodes in placed if at > begin_s for name in _names(nodes))
        # Of a job that ran on several nodes it is not known which one failed: they are named where one stands out.
        (worst, most), (_, next_most) = [*named.most_common(2), ("", 0), ("", 0)][:2]
        return Counted(
            until[counted > begin_s],
            total,
            total - float((up - until).sum()),
            int((self.failed_s > begin_s).sum()),
            (worst, most) if most > max(1, next_most) else None,
            self.is_of_failures_alone,
        )

    def _until(self, at_s: Floats) -> Floats:
        watched: Floats = np.interp(at_s, self.clock_s, self.gpu_hours)
        return watched


def _names(nodes: str) -> Iterator[str]:
    """Each node of a list as Slurm writes it. None of `None assigned`."""
    if nodes.lower().startswith("none"):
        return
    for each in NODE.findall(nodes):
        parts = [
            _numbers(part) if place % 2 else [part] for place, part in enumerate(RANGES.split(each))
        ]
        yield from map("".join, islice(product(*parts), MOST_NODES))


def _numbers(ranges: str) -> Iterator[str]:
    for each in ranges.split(","):
        found = RANGE.fullmatch(each)
        if found is None or len(each) > MOST_LETTERS:
            continue
        first = found[1]
        highest = min(int(found[2] or first), int(first) + MOST_NODES)
        for number in range(int(first), highest + 1):
            yield f"{number:0{len(first)}}"
