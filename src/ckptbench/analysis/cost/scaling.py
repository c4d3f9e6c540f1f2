"""The tables `scaling` and `checkpoint_cost`: throughput, and the cost of a checkpoint, against ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ckptbench.analysis.cost.stall import (
    mean_of_runs,
    reached_shared,
    steady_or_all,
)
from ckptbench.analysis.cost.statistics import (
    Estimate,
    Floats,
    Interval,
    PerRepeat,
    Uncertainty,
    errors,
    with_intervals,
)
from ckptbench.analysis.cost.times import run_times, with_valid_timing
from ckptbench.analysis.tables.columns import (
    REPEATS,
    SETUP,
    SETUP_COLUMNS,
    SYSTEM,
    SYSTEM_COLUMNS,
)
from ckptbench.analysis.tables.grouping import groups, of_first_recovery
from ckptbench.analysis.tables.schema import Column, Table, with_ends
from ckptbench.matrix.interval import NEVER

SCALING = Table(
    "scaling",
    "One row per baseline: its throughput after the warm-up, relative to the smallest number of ranks measured."
    " The batch size per rank is fixed (weak scaling).",
    SYSTEM,
    (
        *SYSTEM_COLUMNS,
        REPEATS,
        Column("steps", "integer", "1", "timed, over all repeats"),
        *with_ends("samples_per_s", "samples/s", "of all ranks together"),
        Column("reference_ranks", "integer", "1", "that smallest number"),
        Column("allowed_samples_per_s", "number", "samples/s", "samples_per_s of the reference x cores used here / cores used there; missing on GPUs"),
        *with_ends("efficiency", "1", "(samples_per_s / that of the reference) / (ranks / reference_ranks)"),
    ),
)  # fmt: skip


CHECKPOINT_COST = Table(
    "checkpoint_cost",
    "One row per setup with checkpoints: the cost of one checkpoint, averaged over each run and then over repeats.",
    SETUP,
    (
        *SETUP_COLUMNS,
        REPEATS,
        Column("checkpoints", "integer", "1", "number behind `stall_s`"),
        Column(
            "steady",
            "flag",
            "",
            "whether these are only those of the steady state",
        ),
        *with_ends(
            "stall_s",
            "s",
            "time that it blocks training",
        ),
        Column(
            "durable_s",
            "number",
            "s",
            "from the start of a save until it was on stable storage at the level `shared`",
        ),
        Column("paired", "number", "1", "as in `overhead`"),
        Column("in_run", "number", "1", "as in `overhead`"),
    ),
)


BUT_RANKS = tuple(name for name in SYSTEM if name != "ranks")


@dataclass(frozen=True, slots=True)
class _Throughput:
    """That of one baseline."""

    setup: dict[str, Any]
    steps: int
    samples_per_s: PerRepeat
    """Of all ranks together."""
    cores: float
    """Cores that the ranks use; NaN where GPUs compute."""

    @classmethod
    def of(cls, setup: dict[str, Any], periods_s: Sequence[Floats], cores: float) -> _Throughput:
        """From the periods of the steps of each repeat; a repeat without a step after the warm-up says nothing."""
        timed_s = [own for own in periods_s if len(own)]
        images = [setup["ranks"] * setup["batch_size"] * len(own) for own in timed_s]
        rate = PerRepeat.ratio(images, [float(own.sum()) for own in timed_s])
        return cls(setup, sum(map(len, timed_s)), rate, cores)


def scaling(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `epochs` and `checkpoints`."""
    runs = with_valid_timing(tables["runs"])
    baselines = of_first_recovery(runs[runs["interval"] == str(NEVER)])
    times = run_times(tables, baselines)
    throughputs = [
        _Throughput.of(
            setup, [times[run].outside_s for run in repeats["run"]], _cores(repeats.iloc[0])
        )
        for setup, repeats in groups(baselines, SYSTEM)
    ]
    known = [throughput for throughput in throughputs if throughput.steps]
    rows: list[dict[str, Any]] = []
    references: dict[tuple[Any, ...], tuple[_Throughput, Uncertainty]] = {}
    for row in zip(known, errors([each.samples_per_s.each for each in known]), strict=True):
        # Of systems that differ in their ranks alone, that with the fewest comes first.
        alike = tuple(row[0].setup[name] for name in BUT_RANKS)
        rows.append(_against(*row, *references.setdefault(alike, row)))
    return SCALING.rows(rows)


def _cores(run: pd.Series[Any]) -> float:
    """Cores that the ranks of this row of the table `runs` compute with; NaN where GPUs do.

    Each rank has its whole share of the cores of its machine, and at least one.
    """
    if run["measured_on"] != "cpu":
        return math.nan
    on_a_node = math.ceil(run["ranks"] / run["nodes"])
    share = max(1, run["cores"] // on_a_node)
    return float(min(run["ranks"] * share, run["nodes"] * run["cores"]))


def _against(
    throughput: _Throughput,
    error: Uncertainty,
    reference: _Throughput,
    reference_error: Uncertainty,
) -> dict[str, Any]:
    rate, ranks = throughput.samples_per_s, throughput.setup["ranks"]
    speedup = rate.value / reference.samples_per_s.value
    ideal = ranks / reference.setup["ranks"]
    efficiency = (
        Interval(1.0, 1.0)
        if throughput is reference
        else error.and_(reference_error).around(speedup / ideal)
    )
    return {
        **throughput.setup,
        "repeats": len(rate.each),
        "steps": throughput.steps,
        **Estimate(rate.value, error.around(rate.value)).columns("samples_per_s"),
        "reference_ranks": reference.setup["ranks"],
        "allowed_samples_per_s": reference.samples_per_s.value * throughput.cores / reference.cores,
        **Estimate(speedup / ideal, efficiency).columns("efficiency"),
    }


def checkpoint_cost(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `overhead` and `stall`; checkpoints of the warm-up are left out."""
    stall = tables["stall"]
    overheads = {
        tuple(setup.values()): row.iloc[0][["paired", "in_run"]]
        for setup, row in groups(tables["overhead"], SETUP)
    }
    setups = list(groups(stall[~stall["warmup"]], SETUP))
    chosen = [steady_or_all(group) for _, group in setups]
    stalls = with_intervals([mean_of_runs(used, "stall_s") for used in chosen])
    return CHECKPOINT_COST.rows(
        {
            **setup,
            "repeats": used["run"].nunique(),
            "checkpoints": len(used),
            "steady": bool(used["steady"].all()),
            **cost.columns("stall_s"),
            "durable_s": mean_of_runs(reached_shared(used), "durable_s").value,
            **overheads[tuple(setup.values())],
        }
        for (setup, _), used, cost in zip(setups, chosen, stalls, strict=True)
    )
