"""How often the 95 % intervals of the tables hold the truth, in simulated studies whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from simulated_studies import (
    BATCH_SIZE,
    BEHIND_STEPS,
    DETERMINISTIC,
    DURABLE_S,
    LOST_S,
    RANKS_USED,
    STALL_S,
    STRATEGIES,
    Floats,
    Row,
    Shape,
    Simulation,
    Tables,
    step_s,
)

from ckptbench.analysis.cost.determinism import determinism_cost
from ckptbench.analysis.cost.goodput import goodput
from ckptbench.analysis.cost.overhead import overhead
from ckptbench.analysis.cost.scaling import checkpoint_cost, scaling
from ckptbench.analysis.cost.sizes import SIZES_KEY
from ckptbench.analysis.cost.stall import stall
from ckptbench.analysis.cost.strategies import strategies
from ckptbench.analysis.tables.registry import DERIVED


def overhead_truth(shape: Shape, row: Row) -> float:
    return (stall_truth(shape, row) + slowdown_truth(shape, row)) / (
        shape.steps_per_epoch * step_s(row)
    )


def images_truth(shape: Shape, row: Row) -> float:
    return float(row["ranks"] * BATCH_SIZE / step_s(row))


def efficiency_truth(shape: Shape, row: Row) -> float:
    return step_s({**row, "ranks": shape.ranks[0]}) / step_s(row)


def stall_truth(shape: Shape, row: Row) -> float:
    """Mean of a stall of this row's strategy. No save waits for the one before."""
    return STALL_S[row["framework"]] * STRATEGIES[row["strategy"]].stall


def slowdown_truth(shape: Shape, row: Row) -> float:
    """Of one checkpoint. No steps come after the last."""
    behind = BEHIND_STEPS * (shape.epochs - 1) / shape.epochs
    return behind * (STRATEGIES[row["strategy"]].slower - 1) * step_s(row)


def durable_truth(shape: Shape, row: Row) -> float:
    """Of all checkpoints but the first, which does not reach the level `shared`."""
    return DURABLE_S[row["framework"]]


def near_durable_truth(shape: Shape, row: Row) -> float:
    """Of one checkpoint a run."""
    return DURABLE_S[row["framework"]]


def memory_truth(shape: Shape, row: Row) -> float:
    return STRATEGIES[row["strategy"]].peak_bytes


def determinism_truth(shape: Shape, row: Row) -> float:
    return DETERMINISTIC - 1


def goodput_truth(shape: Shape, row: Row) -> float:
    useful_s = shape.epochs * shape.steps_per_epoch * step_s(row)
    own_s = useful_s * (1 + overhead_truth(shape, row))
    return useful_s / (own_s + LOST_S)


def of_ranks_truth(shape: Shape, row: Row) -> float:
    return RANKS_USED * goodput_truth(shape, row)


class Estimated(NamedTuple):
    """A column that has an interval."""

    table: str
    truth: Callable[[Shape, Row], float]
    """What the column would say after very many repeats."""
    name: str
    ends: tuple[str, str]
    """The columns of the two ends."""


def _usual(column: str, table: str, truth: Callable[[Shape, Row], float]) -> Estimated:
    return Estimated(table, truth, column, (f"{column}_lo", f"{column}_hi"))


def _of_strategy(column: str, unit: str, truth: Callable[[Shape, Row], float]) -> Estimated:
    return _usual(f"{column}{unit}", "strategies", truth)


COLUMNS = {
    "paired": _usual("paired", "overhead", overhead_truth),
    "in_run": _usual("in_run", "overhead", overhead_truth),
    "in_run_steady": _usual("in_run_steady", "overhead", overhead_truth),
    "overhead": _usual("overhead", "overhead", overhead_truth),
    "samples_per_s": _usual("samples_per_s", "scaling", images_truth),
    "efficiency": _usual("efficiency", "scaling", efficiency_truth),
    "stall_s": _usual("stall_s", "checkpoint_cost", stall_truth),
    "cost": _usual("cost", "determinism_cost", determinism_truth),
}
"""Every column that has an interval but those of the table `strategies`."""
STRATEGY_COLUMNS = {
    "stall": _of_strategy("stall", "_s", stall_truth),
    "slowdown": _of_strategy("slowdown", "_s", slowdown_truth),
    "durable": _of_strategy("durable", "_s", durable_truth),
    "near_durable": _of_strategy("near_durable", "_s", near_durable_truth),
    "overhead": _of_strategy("overhead", "", overhead_truth),
    "memory": _of_strategy("memory", "_bytes", memory_truth),
}
STRUCK_COLUMNS = {
    "goodput": _usual("goodput", "goodput", goodput_truth),
    "of_ranks": _usual("goodput_of_ranks", "goodput", of_ranks_truth),
}
FAULTS = ("exponential",)
"""What strikes the runs of the table `goodput`."""
Columns = Mapping[str, Estimated]

IN_POINTS = ("paired", "in_run", "cost", "overhead")
"""Columns whose values are shares of a time, so that their intervals are told in points."""


def coverage(
    shape: Shape, spread: float, studies: int, seed: int = 0, columns: Columns = COLUMNS
) -> dict[str, Floats]:
    """By column, the share of studies whose interval holds the truth, one a row of its table.

    `spread` is the standard deviation from run to run: 0.02 is 2 %. A missing interval counts as one that does not
    hold the truth.
    """
    known: dict[str, Floats] = {}
    hits: dict[str, list[NDArray[np.bool_]]] = {column: [] for column in columns}
    for column, rows in simulated(shape, spread, studies, seed, columns):
        if column not in known:
            truth = columns[column].truth
            known[column] = np.array([truth(shape, row) for row in rows.to_dict("records")])
        lo, hi = (rows[end] for end in columns[column].ends)
        hits[column].append((lo <= known[column]).to_numpy() & (hi >= known[column]).to_numpy())
    return {column: np.mean(hits[column], axis=0) for column in columns}


def reaches(
    shape: Shape, spread: float, studies: int, seed: int = 0, columns: Columns = COLUMNS
) -> dict[str, Floats]:
    """By column, the medians over studies of how far an interval reaches below and above its value.

    Shape (2,): of overheads and costs in points, 0.05 is five of a hundred; of the others in parts of the value.
    """
    found: dict[str, list[Floats]] = {column: [] for column in columns}
    for column, rows in simulated(shape, spread, studies, seed, columns):
        value = rows[columns[column].name]
        whole = 1.0 if column in IN_POINTS else value
        ends = [(rows[end] - value) / whole for end in columns[column].ends]
        found[column].append(np.array([own.to_numpy() for own in ends]))
    return {column: np.median(np.hstack(own), axis=1) for column, own in found.items()}


def simulated(
    shape: Shape, spread: float, studies: int, seed: int, columns: Columns = COLUMNS
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Of each study, every column that has an interval with the rows of its table."""
    simulation = Simulation(shape, spread, np.random.default_rng(seed))
    for _ in range(studies):
        tables = derived(simulation.collected(), [own.table for own in columns.values()])
        for column, own in columns.items():
            yield column, with_chance(column, tables[own.table])


DERIVES: dict[str, Callable[[Mapping[str, pd.DataFrame]], pd.DataFrame]] = {
    "overhead": overhead,
    "stall": stall,
    "scaling": scaling,
    "checkpoint_cost": checkpoint_cost,
    "determinism_cost": determinism_cost,
    "strategies": strategies,
    "goodput": goodput,
}
BEFORE = {"checkpoint_cost": ("stall",), "strategies": ("stall", "checkpoint_cost", "overhead")}
"""Derived tables that others are derived from."""


def derived(collected: Tables, names: Iterable[str]) -> Tables:
    """These tables, by the functions that make them. Rows are in the order of keys, which is the same in all studies; that of costs is not."""
    needed = {each for name in names for each in (name, *BEFORE.get(name, ()))}
    tables = {
        **collected,
        "sizes": collected["runs"][list(SIZES_KEY)].drop_duplicates().assign(bytes=1.0, files=1.0),
        **{
            name: DERIVED[name].table.rows(())
            for name in ("restore", "consistency", "resume_proof")
        },
    }
    for name, derive in DERIVES.items():
        if name in needed:
            tables[name] = DERIVED[name].table.frame(derive(tables))
    return tables


def with_chance(column: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Without the rows whose value follows from its definition.

    These are efficiencies of the reference, which are 1, and slowdowns without a save in the background, which are 0.
    """
    if column == "efficiency":
        return rows[rows["ranks"] > rows["reference_ranks"]]
    if column == "slowdown":
        return rows[[STRATEGIES[name].slower > 1 for name in rows["strategy"]]]
    return rows
