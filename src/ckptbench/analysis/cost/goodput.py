"""The table `goodput`: the useful part of the time of runs that failures struck."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.overhead import system_of
from ckptbench.analysis.cost.statistics import Estimate, Floats, Interval, PerRepeat, estimates
from ckptbench.analysis.tables.columns import LOST_PARTS, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.grouping import groups, records, struck
from ckptbench.analysis.tables.schema import Column, Table, with_ends
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.registry import RESTART, WHOLE, undisturbed_recovery

GOODPUT = Table(
    "goodput",
    "One row a setup that failures struck. Means are over its repeats; the parts of a loss are those of all failures of a run.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("repeats", "integer", "1", "runs"),
        Column("paired_repeats", "integer", "1", "of these, repeats whose baseline ran too"),
        Column("failures", "number", "1", "that struck a run"),
        Column("failures_per_hour", "number", "1/h", "of training time, interruptions included"),
        Column("wall_s", "number", "s", "from the first step to the end of training, of the paired repeats"),
        Column("useful_s", "number", "s", "wall_s of the baselines x the part of the samples that the final model has seen"),
        *with_ends("goodput", "1", "useful_s / wall_s; its upper end is at most 1, unless survivors go on: fewer ranks may be faster"),
        Column("ranks_used", "number", "1", "ranks that did a step of the final state, mean"),
        *with_ends("goodput_of_ranks", "1", "goodput x ranks used / ranks paid for: all, from the first step to the end"),
        Column("loss_s", "number", "s", "wall_s beyond that of the undisturbed run of the same seed"),
        Column("parts_s", "number", "s", "the parts of all failures of a run added up"),
        Column("explained", "number", "1", "parts_s / loss_s"),
        *with_ends("unexplained_s", "s", "loss_s - parts_s"),
        *(Column(name, "number", "s", meaning) for name, meaning in LOST_PARTS.items()),
    ),
)  # fmt: skip


def goodput(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `failures` and `lineage`."""
    runs, failures = tables["runs"], tables["failures"]
    wall_s = runs.set_index("run")["wall_s"]
    valid = runs[runs["timing_valid"] & (runs["history"] == WHOLE)]
    baseline_s = valid[valid["interval"] == str(NEVER)].set_index("run")["wall_s"]
    lineage = tables["lineage"].set_index("run")
    lost = failures.groupby("run")[["total_s", *LOST_PARTS]].sum()
    setups = list(groups(runs[struck(runs)], SETUP))
    paired = [_paired(group, baseline_s, lineage) for _, group in setups]
    systems = [system_of(setup) for setup, _ in setups]
    walls_s = [[pair.wall_s for pair in pairs] for pairs in paired]
    useful_s = [[pair.useful_s for pair in pairs] for pairs in paired]
    used_s = [[pair.useful_s * pair.used for pair in pairs] for pairs in paired]
    ratios, of_ranks = (
        estimates([PerRepeat.ratio(*own) for own in zip(above, walls_s, strict=True)], systems)
        for above in (useful_s, used_s)
    )
    lost_s = lost.reindex(runs["run"], fill_value=0.0)
    losses = [_Losses.of(group, wall_s, lost_s["total_s"]) for _, group in setups]
    without = estimates([own.ratio for own in losses], [own.references for own in losses])
    return GOODPUT.rows(
        {
            **setup,
            **_of(group, pairs, lost_s.loc[group["run"]]),
            **own.columns(slower),
            **_columns("goodput", ratio, setup["recovery"]),
            "ranks_used": setup["ranks"] * float(pd.Series([pair.used for pair in pairs], dtype=float).mean()),
            **_columns("goodput_of_ranks", of_rank, setup["recovery"]),
            **_failures(failures[failures["run"].isin(group["run"])], group),
        }
        for (setup, group), pairs, own, slower, ratio, of_rank in zip(
            setups, paired, losses, without, ratios, of_ranks, strict=True
        )
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pair:
    """A struck run beside its baseline."""

    wall_s: float
    useful_s: float
    used: float
    """Part of the ranks that did a step of the final state, mean over these steps."""


def _paired(group: pd.DataFrame, baseline_s: pd.Series[Any], lineage: pd.DataFrame) -> list[_Pair]:
    seen = 1 - lineage["never_seen"] / lineage["planned_samples"]
    used = lineage["mean_ranks"]
    return [
        _Pair(
            row["wall_s"],
            float(baseline_s[row["baseline"]]) * float(seen.get(row["run"], 1.0)),
            float(used.get(row["run"], row["ranks"])) / row["ranks"],
        )
        for row in records(group)
        if row["baseline"] in baseline_s.index
    ]


@dataclass(frozen=True, slots=True)
class _Losses:
    """The repeats of a setup beside their undisturbed runs, those that ran. Times have shape (repeats,)."""

    references: tuple[str, ...]
    """Names of the undisturbed runs."""
    struck_s: Floats
    undisturbed_s: Floats
    parts_s: Floats

    @classmethod
    def of(cls, group: pd.DataFrame, wall_s: pd.Series[Any], total_s: pd.Series[Any]) -> _Losses:
        compared = group[group["reference"].isin(wall_s.index)]
        run, reference = compared["run"], compared["reference"]
        times = (wall_s.loc[run], wall_s.loc[reference], total_s.loc[run])
        return cls(tuple(reference), *(own.to_numpy(float) for own in times))

    @property
    def ratio(self) -> PerRepeat:
        """Time of the struck run without the parts of its failures ÷ that of the undisturbed one.

        Both times are undisturbed ones, so this is about 1, and how far repeats differ in it says how far such times do. The
        loss itself does not: it differs most by what struck.
        """
        return PerRepeat.ratio(list(self.struck_s - self.parts_s), list(self.undisturbed_s))

    def columns(self, ratio: Estimate) -> dict[str, float]:
        """NaN without repeats. `ratio` is the estimate of `self.ratio`."""
        if not self.references:
            return {}
        loss_s = float((self.struck_s - self.undisturbed_s).mean())
        parts_s = float(self.parts_s.mean())
        lo, hi = (float(self.undisturbed_s.mean()) * (end - 1) for end in ratio.interval)
        return {
            "loss_s": loss_s,
            "parts_s": parts_s,
            "explained": parts_s / loss_s,
            **Estimate(loss_s - parts_s, Interval(lo, hi)).columns("unexplained_s"),
        }


def _columns(name: str, ratio: Estimate, recovery: str) -> dict[str, float]:
    elastic = undisturbed_recovery(recovery) != RESTART.name
    highest = math.inf if elastic else max(ratio.value, 1.0)
    return {
        **ratio.columns(name),
        f"{name}_hi": np.minimum(ratio.interval.hi, highest),
    }


def _failures(strikes: pd.DataFrame, group: pd.DataFrame) -> dict[str, float]:
    return {
        "failures": len(strikes) / len(group),
        "failures_per_hour": 3600 * len(strikes) / float(group["wall_s"].sum()),
    }


def _of(group: pd.DataFrame, pairs: list[_Pair], lost: pd.DataFrame) -> dict[str, Any]:
    walls = [pair.wall_s for pair in pairs] or list(group["wall_s"])
    return {
        "repeats": len(group),
        "paired_repeats": len(pairs),
        "wall_s": float(pd.Series(walls).mean()),
        "useful_s": float(pd.Series([pair.useful_s for pair in pairs], dtype=float).mean()),
        **{name: float(lost[name].mean()) for name in LOST_PARTS},
    }
