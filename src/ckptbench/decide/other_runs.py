"""What a prediction knows: the costs that other runs tell, and the speed of every run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.cost.stall import of_slowest_rank
from ckptbench.analysis.tables.columns import SETUP, SYSTEM
from ckptbench.analysis.tables.grouping import by_run, groups, records
from ckptbench.analysis.tables.schema import Row
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.recoveries import kills
from ckptbench.matrix.registry import WHOLE

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """A cost that was measured several times in several runs. A run is one observation."""

    runs: Floats
    """The mean of each run, shape (runs,)."""
    events: Floats
    """Each event ÷ the mean of its run, shape (events,)."""

    @classmethod
    def of(cls, each: pd.Series[float], run: pd.Series[str]) -> Self:
        means = each.groupby(run.to_numpy()).mean()
        parts = each.to_numpy(float) / means.reindex(run).to_numpy(float)
        return cls(np.asarray(means, np.float64), parts[np.isfinite(parts)])

    @property
    def mean(self) -> float:
        return float(self.runs.mean())

    def event(self, random: np.random.Generator, draws: int) -> Floats:
        """Factors by which one event differs from the mean of its run, (1 + draws,); the first is 1."""
        return np.concatenate([[1.0], random.choice(self.events, draws)])


def run_spread(seen: Iterable[Seen]) -> Floats:
    """Logarithms of run ÷ mean of its setup, for all setups that ran at least twice; 0 where none did.

    A mean of n runs is nearer to each of them than to another run: hence the factor.
    """
    found = []
    for own in seen:
        number = len(own.runs)
        if number > 1 and own.runs.min() > 0:
            logs = np.log(own.runs)
            found.append((logs - logs.mean()) * math.sqrt(number / (number - 1)))
    return np.concatenate(found) if found else np.zeros(1)


def resampled(differences: Floats, random: np.random.Generator, draws: int) -> Floats:
    """Factors by which another run differs, (1 + draws,), drawn from `run_spread`; the first is 1."""
    factors: Floats = np.exp(np.concatenate([[0.0], random.choice(differences, draws)]))
    return factors


Tables = Mapping[str, pd.DataFrame]
CELL = (*SYSTEM, "strategy", "format", "recovery")


@dataclass(frozen=True, slots=True)
class OtherRuns:
    """What other runs tell of the costs, and the speed of every run. A cell is a system, strategy, format and recovery."""

    costs: dict[tuple[Any, ...], list[Row]]
    """Rows of `decision_costs`, by cell. Each is of another interval; last, if there is one, that of the runs that tell what a failure costs."""
    downs: dict[tuple[Any, ...], Seen]
    """How long each recovery that was measured took, by cell, in steps of its own run at their median."""
    pauses: dict[tuple[Any, ...], Seen]
    """In the same way, of those that survivors went on from."""
    stalls: dict[tuple[Any, ...], Seen]
    """How long each checkpoint blocked training, on the slowest rank, by cell and interval."""
    step_s: pd.Series[float]
    """Median step of each run, outside its saves: slower steps beside them are a cost of these."""
    between_s: pd.Series[float]
    """Of each run, all time beyond its steps at their median: of a baseline evaluation, loading of batches, and what some steps take longer than most."""
    works: list[Seen]
    """The times of undisturbed runs, in units of their own steps, of each setup."""

    @classmethod
    def of(cls, tables: Tables, predicted: set[str]) -> OtherRuns:
        """All but the predicted runs."""
        runs, failures = tables["runs"], tables["failures"]
        others = {
            **tables,
            "runs": runs[~runs["run"].isin(predicted)],
            "failures": failures[~failures["run"].isin(predicted)],
            "phases": tables["phases"][~tables["phases"]["run"].isin(predicted)],
            "restore": tables["restore"][~tables["restore"]["run"].isin(predicted)],
        }
        step_s = _own_step_s(tables["steps"], tables["checkpoints"])
        strikes = kills(others)
        again, went_on = strikes[~strikes["went_on"]], strikes[strikes["went_on"]]
        known = strikes.merge(runs[["run", "interval"]], on="run")[[*CELL, "interval"]]
        told = set(known.itertuples(index=False, name=None))
        rows = records(decision_costs(others))
        costs: dict[tuple[Any, ...], list[Row]] = {}
        for row in sorted(rows, key=lambda row: (*cell_of(row), row["interval"]) in told):
            costs.setdefault(cell_of(row), []).append(row)
        return cls(
            costs=costs,
            downs={cell_of(key): _in_steps(own, "down_s", step_s) for key, own in groups(again, CELL)},
            pauses={cell_of(key): _in_steps(own, "total_s", step_s) for key, own in groups(went_on, CELL)},
            stalls=_stalls(tables["checkpoints"], others["runs"]),
            step_s=step_s,
            between_s=runs.set_index("run")["wall_s"] - runs.set_index("run")["steps"] * step_s,
            works=_works(runs, step_s),
        )  # fmt: skip


def cell_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in CELL)


def _own_step_s(steps: pd.DataFrame, checkpoints: pd.DataFrame) -> pd.Series[float]:
    """By run, of rank 0 after the warm-up. Where every step ran beside a save, they are all taken: then no cost has a slowdown."""
    own = steps[(steps["rank"] == 0) & ~steps["warmup"]]
    saves = by_run(checkpoints[checkpoints["rank"] == 0])
    found = {}
    for run, rows in by_run(own).items():
        outside = rows[~_beside(rows["start_ns"].to_numpy(), saves.get(run))]
        found[run] = float((outside if len(outside) else rows)["duration_s"].median())
    return pd.Series(found, dtype=float)


def _beside(start_ns: NDArray[np.int64], saves: pd.DataFrame | None) -> NDArray[np.bool_]:
    """Which steps began while a save, or the removal of old versions after it, went on."""
    beside = np.zeros(len(start_ns), bool)
    for save in [] if saves is None else records(saves):
        began_ns = save["start_ns"]
        beside |= (began_ns <= start_ns) & (start_ns < began_ns + 1e9 * save["ended_s"])
    return beside


def _in_steps(recoveries: pd.DataFrame, column: str, step_s: pd.Series[float]) -> Seen:
    own = step_s.reindex(recoveries["run"]).to_numpy()
    return Seen.of(recoveries[column] / own, recoveries["run"])


def _stalls(checkpoints: pd.DataFrame, runs: pd.DataFrame) -> dict[tuple[Any, ...], Seen]:
    """As in `decision_costs`."""
    slowest = of_slowest_rank(checkpoints.dropna(subset=["stall_s"]))
    known = slowest[["run", "step", "stall_s"]].merge(runs[["run", *CELL, "interval"]], on="run")
    keys = [*CELL, "interval"]
    return {
        tuple(key.values()): Seen.of(own["stall_s"], own["run"]) for key, own in groups(known, keys)
    }


def _works(runs: pd.DataFrame, step_s: pd.Series[float]) -> list[Seen]:
    whole = runs[(runs["history"] == WHOLE) & runs["timing_valid"]]
    return [
        Seen.of(own["wall_s"] / step_s.reindex(own["run"]).to_numpy(float), own["run"])
        for _, own in groups(whole, SETUP)
    ]
