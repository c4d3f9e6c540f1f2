"""The table `machine`: who else used the launcher's machine during each run, and was the run disturbed?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.tables.columns import RUN
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.common.counters import shares
from ckptbench.run.events import Counted
from ckptbench.run.layout import LAUNCHER_TRACE
from ckptbench.run.trace import whole_events

LIMITS = {"stolen": 0.01, "others": 0.02}
"""A run is disturbed if one of these shares of the machine's CPU time is larger. Two baselines on a quiet machine differ by as much."""
WORDS = {"stolen": "the host took {:.1%} of the CPU time", "others": "other programs used {:.1%} of the CPU time"}  # fmt: skip

MACHINE = Table(
    "machine",
    "One row per run: counters of its launcher's machine, over all completed attempts. Shares are of the CPU time of all cores.",
    ("run",),
    (
        RUN,
        Column("host", "text", "", "its name"),
        Column("seconds", "number", "s", "covered by the counters"),
        Column("cores", "count", "1", "online in the machine"),
        Column("busy", "number", "1", "share used by processes and kernel threads, without interrupts"),
        Column("own", "number", "1", "of this, the launcher and its descendants; missing if ranks were on several nodes"),
        Column("kernel", "number", "1", "of this, kernel threads, such as writeback"),
        Column("others", "number", "1", "of this, other programs, and orphaned processes of the run"),
        Column("stolen", "number", "1", "share withheld by the host of a virtual machine (steal time)"),
        Column("disturbed", "verdict", "", f"whether `stolen` is above {LIMITS['stolen']} or `others` above {LIMITS['others']}; missing if both are unknown"),
        Column("by", "text", "", "what disturbed it, in words; empty if nothing did"),
    ),
)  # fmt: skip


def machine(runs: Sequence[Run]) -> pd.DataFrame:
    return MACHINE.rows(_row(run) for run in runs)


def _row(run: Run) -> dict[str, Any]:
    events = whole_events(run.folder / LAUNCHER_TRACE)
    attempts = _attempts([event for event in events if isinstance(event, Counted)])
    row = {"run": run.cell.id, "host": run.manifest["host"]["host"], "by": ""}
    return row | (_shares(attempts) if attempts else {})


def _attempts(counted: Sequence[Counted]) -> list[tuple[Counted, Counted]]:
    """Begin and end of every attempt that ended. One that was cut off has no end."""
    begins = {each.attempt: each for each in counted if each.when == "begin"}
    ends = [each for each in counted if each.when == "end"]
    return [(begins[end.attempt], end) for end in ends]


def _shares(attempts: Sequence[tuple[Counted, Counted]]) -> dict[str, Any]:
    lengths_s = [(end.at_ns - begin.at_ns) / 1e9 for begin, end in attempts]
    cores = [end.cores for _, end in attempts]
    used = shares(attempts, float(np.dot(lengths_s, cores)))
    return {"seconds": sum(lengths_s), "cores": cores[-1], **used, **_disturbance(used)}


def _disturbance(used: Mapping[str, float]) -> dict[str, Any]:
    """The columns `disturbed` and `by`, of shares of CPU time. One that is unknown is NaN."""
    by = [WORDS[name].format(used[name]) for name, most in LIMITS.items() if used[name] > most]
    known = any(not math.isnan(used[name]) for name in LIMITS)
    return {"disturbed": bool(by) if known else None, "by": " and ".join(by)}
