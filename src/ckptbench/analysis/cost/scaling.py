"""The tables `scaling` and `checkpoint_cost`: throughput, and the cost of a checkpoint, against ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.statistics import (
    UNKNOWN,
    Floats,
    Interval,
    blocks,
    cluster_medians,
    cluster_totals,
    generator,
    percentile_interval,
    varies,
)
from ckptbench.analysis.cost.times import run_times, timed
from ckptbench.analysis.tables.columns import MEASURED, SETUP, SETUP_COLUMNS, SYSTEM, SYSTEM_COLUMNS
from ckptbench.analysis.tables.grouping import by_run, groups
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.interval import NEVER

SCALING = Table(
    "scaling",
    "One row a baseline: its throughput after the warm-up, against the smallest number of ranks measured."
    " The batch size per rank is fixed (weak scaling).",
    SYSTEM,
    (
        *SYSTEM_COLUMNS,
        Column("repeats", "integer", "1", "runs with valid timing"),
        Column("steps", "integer", "1", "timed steps over all repeats"),
        Column("images_per_s", "number", "images/s", "of all ranks together"),
        Column("images_per_s_lo", "number", "images/s", "lower end of the bootstrap 95 % interval"),
        Column("images_per_s_hi", "number", "images/s", "upper end of the bootstrap 95 % interval"),
        Column("reference_ranks", "integer", "1", "smallest number of ranks measured: what the next columns compare with"),
        Column("speedup", "number", "1", "images_per_s / that of the reference"),
        Column("efficiency", "number", "1", "speedup / (ranks / reference_ranks)"),
        Column("efficiency_lo", "number", "1", "lower end of the bootstrap 95 % interval"),
        Column("efficiency_hi", "number", "1", "upper end of the bootstrap 95 % interval"),
        MEASURED,
    ),
)  # fmt: skip


CHECKPOINT_COST = Table(
    "checkpoint_cost",
    "One row a setup with checkpoints: the cost of one checkpoint, to be drawn against ranks.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("repeats", "integer", "1", "runs with valid timing"),
        Column("checkpoints", "integer", "1", "over all repeats"),
        Column("stall_s", "number", "s", "median stall of the slowest rank"),
        Column("stall_s_lo", "number", "s", "lower end of the bootstrap 95 % interval"),
        Column("stall_s_hi", "number", "s", "upper end of the bootstrap 95 % interval"),
        Column("durable_s", "number", "s", "median time until everything was on stable storage"),
        Column("paired", "number", "1", "as in `overhead`"),
        Column("in_run", "number", "1", "as in `overhead`"),
        MEASURED,
    ),
)


BUT_RANKS = tuple(name for name in SYSTEM if name != "ranks")


@dataclass(frozen=True, slots=True)
class _Throughput:
    """Images per second of all ranks together."""

    value: float
    resampled: Floats
    """One value a resample; NaN where nothing varies."""
    repeats: int
    steps: int


def scaling(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `epochs` and `checkpoints`."""
    runs = timed(tables["runs"])
    baselines = runs[runs["interval"] == str(NEVER)]
    times = run_times(tables, baselines)
    rows: list[dict[str, Any]] = []
    for _, group in groups(baselines, BUT_RANKS):
        reference: tuple[int, _Throughput] | None = None
        for setup, repeats in groups(group, SYSTEM):  # in the order of ranks
            throughput = _throughput(setup, [times[run].outside_s for run in repeats["run"]])
            if not throughput.steps:
                continue  # no step after the warm-up
            reference = reference or (setup["ranks"], throughput)
            rows.append({**setup, **_against(throughput, setup["ranks"], *reference)})
    return SCALING.rows(rows)


def _throughput(setup: dict[str, Any], periods_s: Sequence[Floats]) -> _Throughput:
    images = setup["ranks"] * setup["batch_size"]
    periods_s = [period_s for period_s in periods_s if len(period_s)]
    steps = sum(map(len, periods_s))
    resampled = np.full(1, np.nan)
    clusters = [[blocks(period_s)] for period_s in periods_s]
    if steps and varies(clusters):
        (totals,) = cluster_totals(clusters, generator("scaling", tuple(setup.values())))
        resampled = images * totals[..., 1].sum(axis=1) / totals[..., 0].sum(axis=1)
    seconds = sum(float(period_s.sum()) for period_s in periods_s)
    value = images * steps / seconds if steps else np.nan
    return _Throughput(value, resampled, len(periods_s), steps)


def _against(
    throughput: _Throughput, ranks: int, reference_ranks: int, reference: _Throughput
) -> dict[str, Any]:
    own = percentile_interval(throughput.resampled)
    speedup = throughput.value / reference.value
    ideal = ranks / reference_ranks
    efficiency = percentile_interval(throughput.resampled / reference.resampled / ideal)
    return {
        "repeats": throughput.repeats,
        "steps": throughput.steps,
        "images_per_s": throughput.value,
        "images_per_s_lo": own.lo,
        "images_per_s_hi": own.hi,
        "reference_ranks": reference_ranks,
        "speedup": speedup,
        "efficiency": speedup / ideal,
        "efficiency_lo": efficiency.lo,
        "efficiency_hi": efficiency.hi,
        "measured": True,
    }


def checkpoint_cost(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `overhead` and `stall`; checkpoints of the warm-up are left out."""
    stall = tables["stall"]
    estimates = {
        tuple(setup.values()): row.iloc[0][["paired", "in_run"]]
        for setup, row in groups(tables["overhead"], SETUP)
    }
    rows = []
    for setup, group in groups(stall[~stall["warmup"]], SETUP):
        key = tuple(setup.values())
        interval = _median_interval(
            [own["stall_s"].to_numpy() for own in by_run(group).values()], key
        )
        rows.append(
            {
                **setup,
                "repeats": group["run"].nunique(),
                "checkpoints": len(group),
                "stall_s": group["stall_s"].median(),
                "stall_s_lo": interval.lo,
                "stall_s_hi": interval.hi,
                "durable_s": group["durable_s"].median(),
                **estimates[key],
                "measured": True,
            }
        )
    return CHECKPOINT_COST.rows(rows)


def _median_interval(stalls_by_run: Sequence[Floats], key: tuple[Any, ...]) -> Interval:
    if sum(map(len, stalls_by_run)) < 2:
        return UNKNOWN
    return percentile_interval(cluster_medians(stalls_by_run, generator("stall", key)))
