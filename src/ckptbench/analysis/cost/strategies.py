"""The table `strategies`: what a checkpoint of each strategy costs, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ckptbench.analysis.cost.estimates import Slowdown
from ckptbench.analysis.cost.overhead import baselines_of
from ckptbench.analysis.cost.sizes import SIZES_KEY
from ckptbench.analysis.cost.stall import mean_of_runs, reached_shared, steady_or_all
from ckptbench.analysis.cost.statistics import Estimate, Floats, PerRepeat, with_intervals
from ckptbench.analysis.cost.times import run_times, with_valid_timing
from ckptbench.analysis.tables.columns import (
    CHECKPOINT_COLUMNS,
    SETUP,
    SETUP_COLUMNS,
    STRATEGY_COLUMNS,
    SYSTEM,
)
from ckptbench.analysis.tables.grouping import continued, groups, row_by
from ckptbench.analysis.tables.schema import Column, Row, Table, with_ends
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.registry import NOTHING

STRATEGIES = Table(
    "strategies",
    "One row per setup with checkpoints: what one checkpoint of its strategy costs, averaged over each run and then over runs. Times are of the steady state if each run reached it, otherwise of all checkpoints after the warm-up. Rows of one system and interval are ordered by `overhead`.",
    SETUP,
    (
        *SETUP_COLUMNS,
        *STRATEGY_COLUMNS,
        Column("runs", "integer", "1", "runs with valid timing"),
        Column("continued", "integer", "1", "runs that were continued, and are not timed"),
        Column("checkpoints", "integer", "1", "number behind the times"),
        *with_ends("stall_s", "s", "as in `checkpoint_cost`"),
        Column("waited", "number", "1", "fraction for which the next save waited"),
        *with_ends("slowdown_s", "s", "extra time of steps during one save and the following removal"),
        *with_ends("durable_s", "s", "as in `checkpoint_cost`"),
        *with_ends("near_durable_s", "s", "the same for the other checkpoints, at their farthest level"),
        Column("durable_checkpoints", "integer", "1", "checkpoints at the level `shared`"),
        *with_ends("overhead", "1", "as in `overhead`"),
        *with_ends("memory_bytes", "bytes", "peak of host memory above the baseline's, on the rank that needs the most"),
        Column("gpu_memory_bytes", "number", "bytes", "the same of GPU memory that the framework allocated; missing on a CPU"),
        Column("to_host_bytes_per_s", "number", "bytes/s", "of copies from the GPU, as in `checkpoints`"),
        Column("bytes", "number", "bytes", "of one version, as in `sizes`"),
        Column("files", "number", "1", "of one version, as in `sizes`"),
        Column("load_s", "number", "s", "reading a checkpoint at a restart: median of the table `restore`"),
        Column("consistent", "verdict", "", "of all its runs, as in `consistency`"),
    ),
)  # fmt: skip

CELL = (*SYSTEM, *(column.name for column in CHECKPOINT_COLUMNS))
"""Columns that a run and its killed and restarted runs share."""
COMPARED = (*SYSTEM, "interval", "history", "recovery")
"""Columns in which two rows are equal whose overheads can be compared."""
UNKNOWN = PerRepeat(math.nan, PerRepeat.ratio([], []).each)
WAITS = ["save_hold_s", "removal_hold_s"]
"""Parts of a stall in which the next save waited."""

CLOSED, EPOCH = "closed", "epoch"
OF_RANK = ["run", "rank"]

TO_HOST = "to_host_bytes_per_s"

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class _Costs:
    """What is estimated of one setup, over its runs."""

    setup: Row
    checkpoints: int
    runs: list[str]
    waited: float
    slowdown: Slowdown
    durable: PerRepeat
    near_durable: PerRepeat
    durable_checkpoints: int
    memory: PerRepeat
    gpu_memory: float
    to_host: float

    @property
    def cell(self) -> tuple[Any, ...]:
        return tuple(self.setup[name] for name in CELL)


def strategies(tables: Tables) -> pd.DataFrame:
    """From the tables `runs`, `memory`, `steps`, `epochs`, `checkpoints`, `stall`, `checkpoint_cost`, `overhead`, `sizes`, `restore` and `consistency`."""
    costs = list(_costs(tables))
    stalls = row_by(tables["checkpoint_cost"], SETUP)
    overheads = row_by(tables["overhead"], SETUP)
    weights = row_by(tables["sizes"], SIZES_KEY)
    loads, verdicts = _loads(tables["restore"]), _verdicts(tables["consistency"])
    estimated = {
        name: with_intervals([getattr(cost, name) for cost in costs])
        for name in ("durable", "near_durable")
    }
    estimated["memory"] = _memory(costs)
    interrupted = _continued(tables["runs"])
    ratios = with_intervals([cost.slowdown.ratio for cost in costs])
    timed_rows = [
        {
            **cost.setup,
            "runs": len(cost.runs),
            "continued": interrupted.get(tuple(cost.setup.values()), 0),
            "checkpoints": cost.checkpoints,
            **_copied(stalls[tuple(cost.setup.values())], "stall_s"),
            "waited": cost.waited,
            **cost.slowdown.estimate(ratios[index]).columns("slowdown_s"),
            **estimated["durable"][index].columns("durable_s"),
            **estimated["near_durable"][index].columns("near_durable_s"),
            "durable_checkpoints": cost.durable_checkpoints,
            **estimated["memory"][index].columns("memory_bytes"),
            "gpu_memory_bytes": cost.gpu_memory,
            "to_host_bytes_per_s": cost.to_host,
            **_copied(overheads[tuple(cost.setup.values())], "overhead"),
            **_weights(weights.get(tuple(cost.setup[name] for name in SIZES_KEY))),
            "load_s": loads.get(cost.cell, math.nan),
            "consistent": verdicts.get(cost.cell),
        }
        for index, cost in enumerate(costs)
    ]
    untimed = (
        {
            **dict(zip(SETUP, setup, strict=True)),
            "runs": 0,
            "continued": number,
            "checkpoints": 0,
            "durable_checkpoints": 0,
        }
        for setup, number in interrupted.items()
        if setup not in overheads
    )
    facts = row_by(tables["runs"][[*SETUP, *(column.name for column in STRATEGY_COLUMNS)]], SETUP)
    rows = (*timed_rows, *untimed)
    return _ranked({**row, **facts[tuple(row[name] for name in SETUP)]} for row in rows)


def _ranked(rows: Iterable[Row]) -> pd.DataFrame:
    """The table, whose rows are in the order of what strategies cost in all, where they are compared. Unknown costs are last."""
    frame = STRATEGIES.rows(rows)
    in_order = frame.sort_values([*COMPARED, "overhead"], kind="stable", ignore_index=True)
    return STRATEGIES.sorted_frame(in_order)


def _memory(costs: Sequence[_Costs]) -> list[Estimate]:
    """Of each setup, where setups of the same strategy alone tell how far runs differ: a strategy that hardly takes memory differs by many times that."""
    found: dict[int, Estimate] = {}
    for strategy in {cost.setup["strategy"] for cost in costs}:
        places = [place for place, cost in enumerate(costs) if cost.setup["strategy"] == strategy]
        known = with_intervals([costs[place].memory for place in places])
        found |= dict(zip(places, known, strict=True))
    return [found[place] for place in range(len(costs))]


def _continued(runs: pd.DataFrame) -> dict[tuple[Any, ...], int]:
    """By setup with checkpoints, how many of its runs were continued after an interruption."""
    known = continued(runs)
    with_checkpoints = known[known["interval"] != str(NEVER)]
    return {tuple(key.values()): len(rows) for key, rows in groups(with_checkpoints, SETUP)}


def _costs(tables: Tables) -> Iterator[_Costs]:
    stall = tables["stall"]
    valid = with_valid_timing(tables["runs"])
    times = run_times(tables, valid)
    baselines = {run: str(row["run"]) for run, row in baselines_of(valid).items()}
    peaks, gpu_peaks = (_peaks_of(tables["memory"], of) for of in ("peak_bytes", "gpu_peak_bytes"))
    copies = tables["checkpoints"][["run", "step", TO_HOST]].dropna()
    for setup, group in groups(stall[~stall["warmup"]], SETUP):
        used = steady_or_all(group)
        durable = reached_shared(used)
        nearer = used.drop(durable.index)
        runs = sorted(used["run"].unique())
        own = [times[run] for run in runs]
        pairs = [(run, baselines[run]) for run in runs if run in baselines]
        if used["steady"].all():
            own = [run.steady for run in own]
        yield _Costs(
            setup=setup,
            checkpoints=len(used),
            runs=runs,
            waited=float((used[WAITS].sum(axis=1) > 0).mean()),
            slowdown=Slowdown.of(own),
            durable=mean_of_runs(durable, "durable_s"),
            near_durable=mean_of_runs(nearer, "durable_s"),
            durable_checkpoints=len(durable),
            memory=_mean(_peaks_above(peaks, pairs)),
            gpu_memory=_mean(_peaks_above(gpu_peaks, pairs)).value,
            to_host=mean_of_runs(copies.merge(used[["run", "step"]]), TO_HOST).value,
        )


def _mean(each: Floats) -> PerRepeat:
    """NaN without values."""
    return PerRepeat.mean(each) if each.size else UNKNOWN


def _copied(row: Row, name: str) -> dict[str, float]:
    """An estimate and its ends, as they stand in a row of another table."""
    return {column: row[column] for column in (name, f"{name}_lo", f"{name}_hi")}


def _weights(row: Row | None) -> dict[str, float]:
    """NaN where no version was weighed."""
    return {name: math.nan if row is None else row[name] for name in ("bytes", "files")}


def _loads(restore: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """Seconds by cell, of warm restarts that left nothing out."""
    honest = restore[(restore["omit"] == NOTHING) & (restore["cache"] == "warm")]
    return {
        tuple(key.values()): float(rows["load_s"].median()) for key, rows in groups(honest, CELL)
    }


def _verdicts(consistency: pd.DataFrame) -> dict[tuple[Any, ...], bool]:
    """By cell, whether all its runs that could be compared are consistent."""
    known = consistency[consistency["consistent"].notna()]
    return {
        tuple(key.values()): bool(rows["consistent"].all()) for key, rows in groups(known, CELL)
    }


def _peaks_above(peaks: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> Floats:
    """By pair of a run and its baseline the peak of the one above that of the other, on the rank where that is the most.

    `peaks` is that of `_peaks_of`. Shape (pairs,), without pairs of which either has no sample.
    """
    named = pd.DataFrame(pairs, columns=["run", "baseline"])
    both = named.merge(peaks, on="run").merge(
        peaks.rename(columns={"run": "baseline"}), on=["baseline", "rank"], suffixes=("", "_there")
    )
    above = (both["peak"] - both["peak_there"]).groupby(both["run"]).max()
    return above.to_numpy(float)


def _peaks_of(memory: pd.DataFrame, column: str) -> pd.DataFrame:
    """One row per run and rank of the table `memory`: its peak, by this column, up to the last end of an epoch.

    The last save may be written after it, while the rank already copies its final state, which is no memory of
    checkpoints: the baseline's rank does so as well, and has no sample then.
    """
    samples = memory[memory["when"] != CLOSED]
    ends = samples[samples["when"] == EPOCH].groupby(OF_RANK)["at_ns"].max().rename("end_ns")
    timed = samples.join(ends, on=OF_RANK)
    training = timed[timed["end_ns"].isna() | (timed["at_ns"] <= timed["end_ns"])]
    known = training.dropna(subset=[column]).rename(columns={column: "peak"})
    return known.groupby(OF_RANK)["peak"].max().reset_index()
