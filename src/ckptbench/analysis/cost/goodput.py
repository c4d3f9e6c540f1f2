"""The table `goodput`: the useful part of the time of runs that failures struck."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.overhead import system_of
from ckptbench.analysis.cost.statistics import Estimate, PerRepeat, with_intervals
from ckptbench.analysis.cost.times import with_valid_timing
from ckptbench.analysis.tables.columns import LOST_PARTS, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.curves import curves
from ckptbench.analysis.tables.grouping import groups, struck
from ckptbench.analysis.tables.schema import Column, Table, with_ends
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.registry import RESTART, undisturbed_recovery

GOODPUT = Table(
    "goodput",
    "One row per setup with failures. Means are over its repeats; the parts of a loss cover all failures of a run.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("repeats", "integer", "1", "runs"),
        Column("paired_repeats", "integer", "1", "of these, repeats with a baseline"),
        Column("failures", "number", "1", "per run"),
        Column("failures_per_hour", "number", "1/h", "per hour of training time, interruptions included"),
        Column("wall_s", "number", "s", "from the first step to the end of training, of the paired repeats"),
        Column("useful_s", "number", "s", "wall_s of the baselines x the fraction of samples seen by the final model"),
        *with_ends("goodput", "1", "useful_s / wall_s; its upper end is at most 1 unless survivors continue, as fewer ranks may be faster"),
        Column("ranks_used", "number", "1", "ranks per step of the final state"),
        *with_ends("goodput_of_ranks", "1", "goodput x ranks used / all ranks (paid for until the end)"),
        Column("loss_s", "number", "s", "wall_s beyond that of the undisturbed run of the same seed"),
        Column("parts_s", "number", "s", "sum of the parts over all failures of a run"),
        Column("explained", "number", "1", "parts_s / loss_s"),
        *(Column(name, "number", "s", meaning) for name, meaning in LOST_PARTS.items()),
        Column(
            "kept", "verdict", "",
            "whether all repeats end bit for bit as their undisturbed runs or, if not compared, with the same losses and accuracy to the last digit",
        ),
    ),
)  # fmt: skip


def goodput(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `failures`, `lineage`, `resume_proof`, `steps`, `epochs` and `evaluations`."""
    setups = list(groups(_struck_runs(tables), SETUP))
    systems = [system_of(setup) for setup, _ in setups]
    paired = [group[group["baseline_s"].notna()] for _, group in setups]
    ratios, of_ranks = (
        with_intervals([PerRepeat.ratio(own[above], own["wall_s"]) for own in paired], systems)
        for above in ("useful_s", "used_s")
    )
    return GOODPUT.rows(
        {
            **setup,
            **_means(group, pairs),
            **_columns("goodput", ratio, setup["recovery_name"]),
            **_columns("goodput_of_ranks", of_rank, setup["recovery_name"]),
        }
        for (setup, group), pairs, ratio, of_rank in zip(
            setups, paired, ratios, of_ranks, strict=True
        )
    )


def _struck_runs(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Those of the table `runs`, beside their baselines and undisturbed runs where these ran, with the parts of their losses.

    `used` is the part of the ranks that did a step of the final state.
    """
    runs, failures = tables["runs"], tables["failures"]
    lineage = tables["lineage"].set_index("run")
    wall_s = runs.set_index("run")["wall_s"]
    valid = with_valid_timing(runs)
    baselines = valid.loc[valid["interval"] == str(NEVER), "run"]
    own = runs[struck(runs)]
    seen = 1 - own["run"].map(lineage["never_seen"] / lineage["planned_samples"]).fillna(0.0)
    useful_s = own["baseline"].map(wall_s[baselines]) * seen
    used = own["run"].map(lineage["mean_ranks"]).fillna(own["ranks"]) / own["ranks"]
    parts = ["total_s", *LOST_PARTS]
    lost = failures.groupby("run")[parts].sum()
    return own.assign(
        baseline_s=own["baseline"].map(wall_s[baselines]),
        undisturbed_s=own["reference"].map(wall_s),
        useful_s=useful_s,
        used=used,
        used_s=useful_s * used,
        failures=own["run"].map(failures["run"].value_counts()).fillna(0),
        kept=_kept(tables, own),
        **{name: own["run"].map(lost[name]).fillna(0.0) for name in parts},
    )


def _kept(tables: Mapping[str, pd.DataFrame], own: pd.DataFrame) -> pd.Series:
    """Of each run whether its training came out as that of its undisturbed run; missing where this did not run."""
    known = curves(tables, {*own["run"], *own["reference"]})
    last = known.drop_duplicates("run", keep="last").set_index("run")
    ended, expected = (
        last.reindex(own[name]).set_axis(own.index)[["training_loss", "test_loss", "test_accuracy"]]
        for name in ("run", "reference")
    )
    same = (ended.eq(expected) | (ended.isna() & expected.isna())).all(axis=1)
    equal = own["run"].map(tables["resume_proof"].set_index("run")["bit_equal"])
    kept: pd.Series = equal.astype("boolean").fillna(same)
    return kept.where(own["reference"].isin(last.index))


def _means(group: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, Any]:
    compared = group[group["undisturbed_s"].notna()]
    loss_s = (compared["wall_s"] - compared["undisturbed_s"]).mean()
    parts_s = compared["total_s"].mean()
    return {
        "repeats": len(group),
        "paired_repeats": len(pairs),
        "failures": group["failures"].mean(),
        "failures_per_hour": 3600 * group["failures"].sum() / group["wall_s"].sum(),
        "wall_s": (group if pairs.empty else pairs)["wall_s"].mean(),
        "useful_s": pairs["useful_s"].mean(),
        "ranks_used": (pairs["used"] * pairs["ranks"]).mean(),
        "loss_s": loss_s,
        "parts_s": parts_s,
        "explained": parts_s / loss_s,
        **{name: group[name].mean() for name in LOST_PARTS},
        "kept": group["kept"].dropna().all() if group["kept"].notna().any() else None,
    }


def _columns(name: str, ratio: Estimate, recovery: str) -> dict[str, float]:
    elastic = undisturbed_recovery(recovery) != RESTART.name
    highest = math.inf if elastic else max(ratio.value, 1.0)
    return {
        **ratio.columns(name),
        f"{name}_hi": np.minimum(ratio.interval.hi, highest),
    }
