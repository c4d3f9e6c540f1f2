"""What checkpoints take beside time: peak of memory above the baseline's, and growth from one to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.statistics import (
    LEVEL,
    UNKNOWN,
    Estimate,
    Floats,
    Interval,
    PerRepeat,
    estimates,
    student,
)
from ckptbench.analysis.tables.grouping import records

LEAK_BYTES = 1e6
"""A growth from one checkpoint to the next counts as a leak if it is larger, and its interval lies above zero.

Allocators and logs grow by less, and 1,000 checkpoints of such growth are 1 GB.
"""
FEWEST = 3
"""Samples that a line needs before its distance from them says anything."""
CLOSED, EPOCH = "closed", "epoch"


@dataclass(frozen=True, slots=True)
class Growth:
    """A line through the samples of one run, one before each checkpoint: the memory of all ranks together."""

    slope: float
    """Bytes from one checkpoint to the next; NaN without FEWEST samples."""
    interval: Interval
    """From the distances of the samples from the line. It takes them to be independent of one another."""

    @classmethod
    def through(cls, place: Floats, total: Floats) -> Growth:
        """Ordinary least squares, and Student's interval of the slope."""
        number = len(place)
        if number < FEWEST:
            return cls(math.nan, UNKNOWN)
        (slope, _), covariance = np.polyfit(place - place.mean(), total - total.mean(), 1, cov=True)
        half = student(LEVEL, number - 2) * math.sqrt(covariance[0, 0])
        return cls(float(slope), Interval(slope - half, slope + half))


class Memory:
    """The samples of all runs."""

    def __init__(self, tables: Mapping[str, pd.DataFrame]) -> None:
        memory = tables["memory"]
        training = _while_training(memory[memory["when"] != CLOSED])
        self._peaks = _by_run(training.groupby(["run", "rank"])["peak_bytes"].max())
        before = memory[memory["when"] == "before"]
        totals = before.groupby(["run", "step"], as_index=False)["bytes"].sum()
        places = tables["checkpoints"][["run", "step", "place", "steady"]].drop_duplicates(
            ["run", "step"]
        )
        self._before = {str(run): rows for run, rows in totals.merge(places).groupby("run")}

    def above(self, run: str, baseline: str) -> float:
        """Peak of the run above that of its baseline, on the rank where that is the most. NaN if either has no sample."""
        return _largest(self._peaks, run, baseline)

    def growth(self, run: str) -> Growth:
        """Of the steady state if it has enough samples, otherwise after the first checkpoint, which allocates."""
        rows = self._before.get(run)
        if rows is None:
            return Growth(math.nan, UNKNOWN)
        steady = rows[rows["steady"]]
        used = steady if len(steady) >= FEWEST else rows[rows["place"] > 1]
        return Growth.through(used["place"].to_numpy(float), used["bytes"].to_numpy(float))


def growth_of(runs: list[Growth]) -> Estimate:
    """Over several runs from how far these differ, over a single one from its own samples."""
    if len(runs) == 1:
        return Estimate(runs[0].slope, runs[0].interval)
    (estimate,) = estimates([PerRepeat.mean(np.array([run.slope for run in runs]))])
    return estimate


def leaks(growth: Estimate) -> bool | None:
    """None where there is no interval."""
    if math.isnan(growth.interval.lo):
        return None
    return growth.interval.lo > 0 and growth.value > LEAK_BYTES


def _while_training(samples: pd.DataFrame) -> pd.DataFrame:
    """Those up to the last end of an epoch.

    The last save may be written after it, while the rank already copies its final state, which is no memory of
    checkpoints: the baseline's rank does so as well, and has no sample then.
    """
    ends = samples[samples["when"] == EPOCH].groupby(["run", "rank"])["at_ns"].max().rename("end")
    last = samples.merge(ends.reset_index(), how="left", on=["run", "rank"])["end"]
    known = last.isna() | (samples["at_ns"].reset_index(drop=True) <= last)
    return samples.reset_index(drop=True)[known]


def _by_run(values: pd.Series[Any]) -> dict[str, dict[int, float]]:
    """By run and rank."""
    found: dict[str, dict[int, float]] = {}
    for row in records(values.rename("value").reset_index()):
        found.setdefault(str(row["run"]), {})[int(row["rank"])] = float(row["value"])
    return found


def _largest(by_run: Mapping[str, Mapping[int, float]], run: str, baseline: str) -> float:
    own, other = by_run.get(run, {}), by_run.get(baseline, {})
    return max((own[rank] - other[rank] for rank in own.keys() & other.keys()), default=math.nan)
