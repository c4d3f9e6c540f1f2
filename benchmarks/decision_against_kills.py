"""Is the goodput that the decision predicts the one that is measured? Predicted beside measured, of runs that drawn kills sent back to a checkpoint.

    .venv/bin/snakemake --profile local --configfile config/studies/decision.yaml      # about an hour on two cores
    .venv/bin/python benchmarks/decision_against_kills.py results/tables

Costs come from the other runs of the study: undisturbed ones, and those that listed failures killed. The work of a run is the time of its baseline;
where saves block, at the run's own speed, so that a machine that has become slower or faster is no part of the comparison. The failures are those
that came, at the times at which they came: each one takes the run back to its newest durable version, as in `ckptbench.decide.model`.
The first checkpoints of a run, which go to fresh blocks of the disk, are taken to cost what later ones do.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.times import with_valid_timing
from ckptbench.analysis.tables.columns import SETUP, SYSTEM
from ckptbench.analysis.tables.grouping import groups, records, struck
from ckptbench.analysis.tables.schema import Row
from ckptbench.analysis.tables.store import read_tables
from ckptbench.decide import COST_TABLES
from ckptbench.decide.costs import Saving
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.recoveries import kills
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.registry import FAULTS

DRAWN = [name for name, entry in FAULTS.items() if "mean_s" in entry.options]
CELL = (*SYSTEM, "strategy", "format", "recovery")
OF_RUNS = ("runs", "failures", "phases", "restore")
Tables = Mapping[str, pd.DataFrame]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("tables", type=Path, nargs="?", default=Path("results/tables"))
    folder = parser.parse_args().tables
    if not (folder / "runs.parquet").exists():
        raise SystemExit(f"{folder} has no tables of a study: name its folder results/tables")
    found = list(points(read_tables(folder, COST_TABLES)))
    for point in found:
        print(point)
    if not found:
        raise SystemExit("no run was killed by drawn failures whose costs other runs tell: make config/studies/decision.yaml")  # fmt: skip
    apart = [abs(point.predicted - point.measured) for point in found]
    print(f"{len(found)} points: median distance {100 * np.median(apart):.1f} points, largest {100 * max(apart):.1f}")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The goodput of all repeats of one setup."""

    name: str
    steps: int
    """Between two checkpoints."""
    failures: int
    predicted: float
    measured: float

    def __str__(self) -> str:
        return (
            f"{self.name}, every {self.steps} steps, {self.failures} failures: predicted {100 * self.predicted:.1f} %,"
            f" measured {100 * self.measured:.1f} %, ratio {self.predicted / self.measured:.3f}"
        )


def points(tables: Tables) -> Iterator[Point]:
    """From the tables that `COST_TABLES` names. Setups whose survivors go on are left out, and those whose costs no other run tells."""
    runs, failures = tables["runs"], tables["failures"]
    step_s = _step_s(tables["steps"])
    walls = with_valid_timing(runs).set_index("run")["wall_s"]
    drawn = runs[struck(runs) & runs["history_name"].isin(DRAWN) & runs["baseline"].isin(walls.index)]  # fmt: skip
    costs = _costs_of_others(tables, set(runs.loc[struck(runs) & runs["history_name"].isin(DRAWN), "run"]))  # fmt: skip
    for setup, own in groups(drawn, SETUP) if len(drawn) else ():
        known = costs.get(tuple(setup[name] for name in CELL))
        if not known:
            continue
        steps = Interval.parse(setup["interval"]).steps(int(own["steps_per_epoch"].iloc[0]))
        cost = min(known, key=lambda row: abs(math.log(_steps(row) / steps)))
        work_s, predicted_s, number = 0.0, 0.0, 0
        for run in records(own):
            speed = step_s[run["run"]] / step_s[run["baseline"]] if run["blocking"] else 1.0
            run_s = walls[run["baseline"]] * speed
            came = failures.loc[failures["run"] == run["run"], "second"].sort_values().tolist()
            work_s, number = work_s + run_s, number + len(came)
            predicted_s += finished_s(came, run_s, run_s * steps / run["steps"], _saving(cost), cost["down_s"])  # fmt: skip
        if number:
            yield Point(
                name=", ".join([setup["framework"], setup["strategy"]]),
                steps=steps,
                failures=number,
                predicted=work_s / predicted_s,
                measured=work_s / own["wall_s"].sum(),
            )


def finished_s(
    failures: Sequence[float], work_s: float, interval_s: float, saving: Saving, down_s: float
) -> float:
    """Seconds until so much work is done, with a checkpoint after each interval of it, the last one included. `failures` are seconds since the run began."""
    period_s, lag_s = float(saving.period_s(interval_s)), float(saving.lag_s(interval_s))

    def rest_s(done_s: float) -> float:
        saves = math.floor((work_s - done_s) / interval_s + 1e-6)  # for rounding
        return work_s - done_s + saves * (period_s - interval_s)

    from_s = done_s = 0.0
    for at_s in failures:
        if at_s >= from_s + rest_s(done_s):
            break
        durable = math.floor(max(at_s - from_s - lag_s, 0.0) / period_s)
        done_s, from_s = min(done_s + durable * interval_s, work_s), at_s + down_s
    return from_s + rest_s(done_s)


def _step_s(steps: pd.DataFrame) -> Mapping[str, float]:
    """The median of each run, on rank 0."""
    own = steps[(steps["rank"] == 0) & ~steps["warmup"].astype(bool)]
    return dict(own.groupby("run")["duration_s"].median())


def _costs_of_others(tables: Tables, predicted: set[str]) -> dict[tuple[object, ...], list[Row]]:
    """Rows of `decision_costs` by cell, of all runs but the predicted ones. What a restart costs must have been measured."""
    others = {name: frame[~frame["run"].isin(predicted)] if name in OF_RUNS else frame for name, frame in tables.items()}  # fmt: skip
    went_back = kills(others)
    killed = set(went_back[~went_back["went_on"]][list(CELL)].itertuples(index=False, name=None))
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in records(decision_costs(others)):
        cell = tuple(row[name] for name in CELL)
        if cell in killed and row["survived"] == 0:
            found.setdefault(cell, []).append(row)
    return found


def _steps(row: Row) -> int:
    return Interval.parse(row["interval"]).steps(int(row["steps_per_epoch"]))


def _saving(row: Row) -> Saving:
    slowdown_s = 0.0 if math.isnan(row["slowdown_s"]) else max(row["slowdown_s"], 0.0)
    return Saving(stall_s=row["stall_s"], durable_s=max(row["durable_s"], row["stall_s"]), slowdown_s=slowdown_s)  # fmt: skip


if __name__ == "__main__":
    main()
