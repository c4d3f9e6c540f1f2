"""The table `machine`: who else used the launcher's machine during each run, and was the run disturbed?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.tables.columns import RUN
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.common.counters import grown, shares
from ckptbench.runs.events import Counted
from ckptbench.runs.layout import LAUNCHER_TRACE
from ckptbench.runs.seal import refused
from ckptbench.runs.trace import whole_events

LIMITS = {"stolen": 0.01, "others": 0.02}
"""A run is disturbed if one of these shares of the machine's CPU time is larger. Two baselines on a quiet machine differ by as much."""
WORDS = {"stolen": "the host took {:.1%} of the CPU time", "others": "other programs used {:.1%} of the CPU time"}  # fmt: skip
PRESSURES = ("cpu", "io", "memory")

MACHINE = Table(
    "machine",
    "One row a run: the counters of its launcher's machine, over all attempts that ended. Shares are of the CPU time of all cores.",
    ("run",),
    (
        RUN,
        Column("host", "text", "", "name of the launcher's machine"),
        Column("seconds", "number", "s", "that were counted"),
        Column("cores", "count", "1", "of the machine, that were online"),
        Column("busy", "number", "1", "share that processes and kernel threads used, without interrupts"),
        Column("own", "number", "1", "of this, the launcher and all that it has started; missing if ranks were on several nodes"),
        Column("kernel", "number", "1", "of this, the kernel's own threads, such as those that write pages back"),
        Column("others", "number", "1", "of this, other programs, and processes of the run whose parent ended before them"),
        Column("stolen", "number", "1", "share that the host of a virtual machine did not give while a core was ready to run"),
        *(Column(f"{name}_pressure", "number", "1", f"part of the seconds in which some process waited for {name}") for name in PRESSURES),
        Column("mhz_min", "number", "MHz", "frequency of the slowest core at the begin or end of an attempt"),
        Column("mhz_max", "number", "MHz", "that of the fastest core"),
        Column("disturbed", "verdict", "", f"whether `stolen` is above {LIMITS['stolen']} or `others` above {LIMITS['others']}; missing if both are unknown"),
        Column("by", "text", "", "what disturbed it, in words; empty where nothing did"),
    ),
)  # fmt: skip


def machine(runs: Sequence[Run]) -> pd.DataFrame:
    return MACHINE.rows(_row(run) for run in runs)


@dataclass(frozen=True, slots=True)
class _Segment:
    """What was counted during one attempt. A number that is unknown is NaN."""

    begin: Counted
    end: Counted

    @property
    def seconds(self) -> float:
        return (self.end.at_ns - self.begin.at_ns) / 1e9

    def pressure_s(self, resource: str) -> float:
        return grown(self.begin.pressure_s.get(resource), self.end.pressure_s.get(resource))


def _row(run: Run) -> dict[str, Any]:
    path = run.folder / LAUNCHER_TRACE
    counted = [event for event in whole_events(path) if isinstance(event, Counted)]
    for event in counted:
        _check(path, event)
    segments = list(_segments(counted))
    row = {"run": run.cell.id, "host": run.manifest["host"]["host"], "by": ""}
    return row | (_shares(segments) if segments else {})


def _check(path: Path, event: Counted) -> None:
    """Raises RunFolderError where no core was online."""
    if event.cores < 1:
        raise refused(path, f"cores is {event.cores}, less than one")


def _segments(counted: Sequence[Counted]) -> Iterator[_Segment]:
    """Of every attempt that ended. One that was cut off has no end."""
    begin = None
    for each in counted:
        if each.when == "begin":
            begin = each
        elif begin is not None and begin.attempt == each.attempt and each.at_ns > begin.at_ns:
            yield _Segment(begin, each)
            begin = None


def _shares(segments: Sequence[_Segment]) -> dict[str, Any]:
    seconds = sum(each.seconds for each in segments)
    allowed_s = sum(each.seconds * each.end.cores for each in segments)
    used = shares([(each.begin, each.end) for each in segments], allowed_s)
    found = [each for segment in segments for each in (segment.begin, segment.end)]
    return {
        "seconds": seconds,
        "cores": segments[-1].end.cores,
        **used,
        **{
            f"{name}_pressure": sum(each.pressure_s(name) for each in segments) / seconds
            for name in PRESSURES
        },
        "mhz_min": min((each.mhz_min for each in found if each.mhz_min is not None), default=None),
        "mhz_max": max((each.mhz_max for each in found if each.mhz_max is not None), default=None),
        **disturbance(used),
    }


def disturbance(used: Mapping[str, float]) -> dict[str, Any]:
    """The columns `disturbed` and `by`, of shares of CPU time. One that is unknown is NaN."""
    by = [WORDS[name].format(used[name]) for name, most in LIMITS.items() if used[name] > most]
    known = any(not math.isnan(used[name]) for name in LIMITS)
    return {"disturbed": bool(by) if known else None, "by": " and ".join(by)}
