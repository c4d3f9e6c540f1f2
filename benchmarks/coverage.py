"""How often the 95 % intervals of the tables hold the truth. The promise: in at least 93 % of all simulated studies.

Every simulated study has the shape of the default one: three frameworks on one and two ranks, each with a baseline, a
baseline in deterministic mode, and a run with a checkpoint every epoch. Its collected tables are drawn at random, and the
tables' own functions derive the rest. As the truth of each column is known, what is counted is how often it lies between
the two ends.

Two kinds of chance are drawn, both lognormal. Within a run, each step differs by 10 % and each checkpoint by 20 %.
From run to run, all steps of a run are faster or slower by the spread that is asked for, and so, independently, are all its
checkpoints. With `--uneven 3` the runs of the last framework differ three times as much as those of the others.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from ckptbench.analysis.cost.determinism import determinism_cost  # noqa: E402
from ckptbench.analysis.cost.overhead import overhead  # noqa: E402
from ckptbench.analysis.cost.scaling import checkpoint_cost, scaling  # noqa: E402
from ckptbench.analysis.cost.stall import stall  # noqa: E402

PROMISE = 0.93
FRAMEWORKS = ("chainer", "pytorch", "tensorflow")
RANKS = (1, 2)
BATCH_SIZE = 16
STEP_S = {"chainer": 1.0, "pytorch": 0.5, "tensorflow": 0.8}
"""Mean of a step on one rank."""
TWO_RANKS, DETERMINISTIC = 1.5, 1.1
"""How much longer a step takes on two ranks, and in deterministic mode."""
STALL_S = {"chainer": 4.0, "pytorch": 0.5, "tensorflow": 1.0}
WITHIN_STEPS, WITHIN_STALLS = 0.10, 0.20
"""Standard deviation of the logarithm, within a run."""

Floats = NDArray[np.float64]
Tables = dict[str, pd.DataFrame]
Row = Mapping[str, Any]
"""A row of any table, by the names of its columns."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is the same in every simulated study."""

    repeats: int
    frameworks: tuple[str, ...] = FRAMEWORKS
    ranks: tuple[int, ...] = RANKS
    epochs: int = 3
    steps_per_epoch: int = 8
    uneven: float = 1.0
    """How many times as much as other runs those of the last framework differ."""

    def runs(self) -> pd.DataFrame:
        """The collected table `runs`, as far as others read it."""
        return pd.DataFrame(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        kinds = (("never", False), ("never", True), ("e1", False))
        matrix = itertools.product(self.frameworks, self.ranks, kinds, range(self.repeats))
        for number, (framework, ranks, (interval, deterministic), repeat) in enumerate(matrix):
            yield {
                "run": f"{number:04}",
                "framework": framework,
                "model": "resnet50",
                "dataset": "digits",
                "ranks": ranks,
                "batch_size": BATCH_SIZE,
                "epochs": self.epochs,
                "deterministic": deterministic,
                "accelerator": "cpu",
                "measured_on": "cpu",
                "strategy": "native",
                "format": "none" if interval == "never" else "hdf5",
                "interval": interval,
                "history": "whole",
                "omit": "nothing",
                "cache": "warm",
                "repeat": repeat,
                "timing_valid": True,
                "warmup_steps": 0,
                "steps_per_epoch": self.steps_per_epoch,
                "host": "node1",
                "device": "cpu",
                "cores": 2,
                "nodes": 1,
                "checkpoint_file_system": "ext4",
            }


class Simulation:
    """Draws the collected tables of one study after another."""

    def __init__(self, shape: Shape, spread: float, random: np.random.Generator) -> None:
        self.shape, self._random = shape, random
        self.runs = shape.runs()
        last = self.runs["framework"] == shape.frameworks[-1]
        self._spread = spread * np.where(last, shape.uneven, 1.0)
        self._step_s = np.array([step_s(row) for row in self.runs.to_dict("records")])
        writes = (self.runs["interval"] != "never").to_numpy()
        self._stall_s = self.runs["framework"].map(STALL_S).to_numpy() * writes

    def tables(self) -> Tables:
        shape = self.shape
        steps = shape.epochs * shape.steps_per_epoch
        step_s = self._drawn(self._step_s, steps, WITHIN_STEPS)
        stall_s = self._drawn(self._stall_s, shape.epochs, WITHIN_STALLS)
        after_s = np.zeros_like(step_s)  # the stall after each step
        after_s[:, shape.steps_per_epoch - 1 :: shape.steps_per_epoch] = stall_s
        end_s = np.cumsum(step_s + after_s, axis=1) - after_s
        collected = {
            "runs": self.runs,
            "steps": self._steps(step_s, end_s),
            "epochs": self._epochs((step_s + after_s).reshape(len(step_s), shape.epochs, -1)),
            "checkpoints": self._checkpoints(stall_s, end_s),
        }
        derived: dict[str, Callable[[Mapping[str, pd.DataFrame]], pd.DataFrame]] = {
            "overhead": overhead,
            "stall": stall,
            "scaling": scaling,
            "checkpoint_cost": checkpoint_cost,
            "determinism_cost": determinism_cost,
        }
        for name, derive in derived.items():
            collected[name] = derive(collected)
        return collected

    def _drawn(self, mean_s: Floats, number: int, within: float) -> Floats:
        """Shape (runs, number): every run by a factor of its own, and each of its times by another."""
        of_run = self._around_one(self._spread)
        of_each = self._around_one(np.full((number, len(mean_s)), within))
        return (mean_s * of_run * of_each).T

    def _around_one(self, spread: Floats) -> Floats:
        """Lognormal factors whose mean is one."""
        factors: Floats = np.exp(
            spread * self._random.standard_normal(spread.shape) - spread**2 / 2
        )
        return factors

    def _steps(self, step_s: Floats, end_s: Floats) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs["run"], step_s.shape[1]).to_numpy(),
                "rank": 0,
                "start_ns": nanoseconds(end_s - step_s).ravel(),
                "duration_s": step_s.ravel(),
                "wait_s": 0.0,
                "warmup": False,
            }
        )

    def _epochs(self, parts_s: Floats) -> pd.DataFrame:
        epochs = parts_s.shape[1]
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs["run"], epochs).to_numpy(),
                "epoch": np.tile(np.arange(epochs), len(parts_s)),
                "duration_s": parts_s.sum(axis=2).ravel(),
                "warmup_s": 0.0,
            }
        )

    def _checkpoints(self, stall_s: Floats, end_s: Floats) -> pd.DataFrame:
        every, written = self.shape.steps_per_epoch, self._stall_s > 0
        own_s, runs = stall_s[written].ravel(), self.runs.loc[written, "run"]
        epoch = np.tile(np.arange(self.shape.epochs), len(runs))
        return pd.DataFrame(
            {
                "run": np.repeat(runs, self.shape.epochs).to_numpy(),
                "rank": 0,
                "step": (epoch + 1) * every,
                "epoch": epoch,
                "start_ns": nanoseconds(end_s[written][:, every - 1 :: every]).ravel(),
                "stall_s": own_s,
                "update_hold_s": 0.0,
                "writes": True,
                "write_s": own_s,
                "sync_s": 0.0,
                "checksum_s": 0.0,
                "commit_s": 0.0,
                "retention_s": 0.0,
                "durable_s": own_s,
                "ended_s": own_s,
                "place": epoch + 1,
                "steady": True,
                "bytes": 1,
            }
        )


def nanoseconds(seconds: Floats) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)


def step_s(row: Row) -> float:
    """Mean of a step of this row of any table."""
    slower = TWO_RANKS if row["ranks"] == 2 else 1.0
    deterministic = DETERMINISTIC if row["deterministic"] else 1.0
    return STEP_S[row["framework"]] * slower * deterministic


def overhead_truth(shape: Shape, row: Row) -> float:
    return STALL_S[row["framework"]] / (shape.steps_per_epoch * step_s(row))


def images_truth(shape: Shape, row: Row) -> float:
    return float(row["ranks"] * BATCH_SIZE / step_s(row))


def efficiency_truth(shape: Shape, row: Row) -> float:
    return step_s({**row, "ranks": shape.ranks[0]}) / step_s(row)


def stall_truth(shape: Shape, row: Row) -> float:
    """The mean over runs of the median of a run."""
    drawn = np.random.default_rng(0).standard_normal((200_000, shape.epochs))
    medians = np.median(np.exp(WITHIN_STALLS * drawn - WITHIN_STALLS**2 / 2), axis=1)
    return STALL_S[row["framework"]] * float(medians.mean())


def determinism_truth(shape: Shape, row: Row) -> float:
    return DETERMINISTIC - 1


COLUMNS: dict[str, tuple[str, Callable[[Shape, Row], float]]] = {
    "paired": ("overhead", overhead_truth),
    "in_run": ("overhead", overhead_truth),
    "in_run_steady": ("overhead", overhead_truth),
    "images_per_s": ("scaling", images_truth),
    "efficiency": ("scaling", efficiency_truth),
    "stall_s": ("checkpoint_cost", stall_truth),
    "cost": ("determinism_cost", determinism_truth),
}
"""Every column that has an interval, with its table and what it would say after very many repeats."""

IN_POINTS = ("paired", "in_run", "cost")
"""Columns whose values are shares of a time, so that their intervals are told in points."""


def coverage(shape: Shape, spread: float, studies: int, seed: int = 0) -> dict[str, Floats]:
    """By column, the share of studies whose interval holds the truth, one a row of its table.

    `spread` is the standard deviation from run to run: 0.02 is 2 %. A missing interval counts as one that does not
    hold the truth.
    """
    known: dict[str, Floats] = {}
    hits: dict[str, list[NDArray[np.bool_]]] = {column: [] for column in COLUMNS}
    for column, rows in simulated(shape, spread, studies, seed):
        if column not in known:
            truth = COLUMNS[column][1]
            known[column] = np.array([truth(shape, row) for row in rows.to_dict("records")])
        lo, hi = rows[f"{column}_lo"], rows[f"{column}_hi"]
        hits[column].append((lo <= known[column]).to_numpy() & (hi >= known[column]).to_numpy())
    return {column: np.mean(hits[column], axis=0) for column in COLUMNS}


def reaches(shape: Shape, spread: float, studies: int, seed: int = 0) -> dict[str, Floats]:
    """By column, the medians over studies of how far an interval reaches below and above its value.

    Shape (2,): of overheads and costs in points, 0.05 is five of a hundred; of the others in parts of the value.
    """
    found: dict[str, list[Floats]] = {column: [] for column in COLUMNS}
    for column, rows in simulated(shape, spread, studies, seed):
        whole = 1.0 if column in IN_POINTS else rows[column]
        ends = [(rows[f"{column}_{end}"] - rows[column]) / whole for end in ("lo", "hi")]
        found[column].append(np.array([own.to_numpy() for own in ends]))
    return {column: np.median(np.hstack(own), axis=1) for column, own in found.items()}


def simulated(
    shape: Shape, spread: float, studies: int, seed: int
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Of each study, every column that has an interval with the rows of its table."""
    simulation = Simulation(shape, spread, np.random.default_rng(seed))
    for _ in range(studies):
        tables = simulation.tables()
        for column, (name, _) in COLUMNS.items():
            yield column, with_chance(column, tables[name])


def with_chance(column: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Without the rows whose value is 1 by definition: efficiencies of the reference."""
    return rows[rows["ranks"] > rows["reference_ranks"]] if column == "efficiency" else rows


def main() -> None:
    options = _parse()
    if options.reaches:
        print(f"{options.studies} studies a line; medians of how far the intervals reach")
    else:
        print(f"{options.studies} studies a line; promised: at least {PROMISE:.0%}")
    print(f"{'repeats':>7} {'spread':>6}  " + " ".join(f"{column:>12}" for column in COLUMNS))
    for repeats, spread in itertools.product(options.repeats, options.spread):
        shape = Shape(repeats, FRAMEWORKS[-options.frameworks :], RANKS, uneven=options.uneven)
        told = _ends if options.reaches else _cells
        found = (reaches if options.reaches else coverage)(shape, spread, options.studies)
        print(f"{repeats:>7} {spread:>6.0%}  " + told(list(found.values())), flush=True)


def _ends(reached: Sequence[Floats]) -> str:
    return " ".join(f"{lo:>+6.0%} {hi:>+5.0%}" for lo, hi in reached)


def _cells(shares: Sequence[Floats]) -> str:
    """Of each column the share over all rows and, where rows differ by design, that of the worst row."""
    return " ".join(f"{own.mean():>6.1%} {own.min():>5.0%}" for own in shares)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--repeats", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--spread", type=float, nargs="+", default=[0.0, 0.02, 0.05])
    parser.add_argument("--frameworks", type=int, default=len(FRAMEWORKS), help="in the study")
    parser.add_argument("--uneven", type=float, default=1.0)
    parser.add_argument(
        "--reaches", action="store_true", help="print how far the intervals reach instead"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
