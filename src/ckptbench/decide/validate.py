"""The table `validation`: the goodput that the model predicts, beside what was measured under failures that really came.

The failures are those that struck: the same at the same times, so chance in how many came is no part of the comparison. All costs come from
other runs: undisturbed ones, and those that other traces of failures struck.

A run has a certain work to do: its steps at its own speed, the median, and what its baseline does between steps. A recovery is taken to be as much
slower or faster as its steps are. So a machine that has become slower or faster since the other runs is no part of the comparison: prediction and
measurement are both of the run's own speed. It goes through periods as in `model`, each failure takes it back to the newest durable version, and the time
until the work is done is its wall time.

A checkpoint costs what it did on average in other runs at the nearest interval. Such a run has as many of the first checkpoints, which go to fresh blocks of the
disk, as this one; the decision for a long training leaves them out.

The interval of a prediction is that of a measurement of as many repeats. It holds how well each cost is known, as the decision takes it (`sampling`), how far
one run differs from the next (`other_runs`), in its recoveries, its checkpoints and its work, and how far one recovery differs from the next in a run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.cost.statistics import PerRepeat, estimates
from ckptbench.analysis.tables.columns import SETUP, SETUP_COLUMNS, SYSTEM
from ckptbench.analysis.tables.grouping import groups, records, struck
from ckptbench.analysis.tables.schema import Column, Row, Table, with_ends
from ckptbench.decide import sampling
from ckptbench.decide.model import Recovering, Saving, best
from ckptbench.decide.other_runs import CELL, OtherRuns, Seen, cell_of, resampled, run_spread
from ckptbench.decide.recoveries import KILL, key_of
from ckptbench.decide.struck_run import Lost, finished_s
from ckptbench.decide.units import SECONDS_PER_HOUR
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.plugin_spec import defaults_of
from ckptbench.matrix.registry import FAULTS, WHOLE

Floats = NDArray[np.float64]
Tables = Mapping[str, pd.DataFrame]

VALIDATION = Table(
    "validation",
    "One row a setup that drawn kills struck: the goodput that the model predicts from the costs of other runs, and the measured one. Not of recoveries that go on with fewer ranks.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("interval_steps", "integer", "steps", "between two checkpoints"),
        Column("repeats", "integer", "1", "runs beside their baselines"),
        Column("failures", "integer", "1", "that struck them, all together"),
        *with_ends("predicted", "1", "goodput by the model"),
        *with_ends("measured", "1", "work ÷ wall time; work is all steps at their median, and what the baselines spend between steps"),
        Column("goodput", "number", "1", "as in `goodput`"),
        Column("holds", "flag", "", "whether the measured goodput lies in the predicted interval"),
        Column("best_steps", "number", "steps", "best interval by the model, at the rate at which failures came"),
        Column("fine_from_steps", "number", "steps", "shortest interval that is fine by the model"),
        Column("fine_to_steps", "number", "steps", "longest one"),
    ),
)  # fmt: skip

DRAWN = tuple(name for name, entry in FAULTS.items() if "mean_s" in entry.options)
"""Traces of failures that are drawn. Listed ones tell what a failure costs."""
FEWEST = 2
"""One recovery does not tell how far they differ."""


def validation(tables: Tables) -> pd.DataFrame:
    """From the tables of a study that `COST_TABLES` names, and `goodput`."""
    goodputs = tables["goodput"]
    shared_every = tables["runs"].groupby(list(SETUP))["shared_every"].first()
    alike = np.array(
        [_kills_ranks(row, shared_every[key_of(row, SETUP)]) for row in records(goodputs)],
        bool,
    )
    checked = goodputs[alike & (goodputs["paired_repeats"] > 0) & (goodputs["failures"] > 0)]
    if checked.empty:
        return VALIDATION.rows([])
    check = _Checked.of(tables)
    rows = [
        row
        for (_, own), rate in zip(groups(checked, [*CELL, "history"]), _rates(checked), strict=True)
        for row in check.rows(own, rate)
    ]
    found = [row.pop("measured") for row in rows]
    off = estimates([row.pop("off") for row in rows])
    return VALIDATION.rows(
        {
            **row,
            "measured": measured,
            "measured_lo": measured * ratio.interval.lo / ratio.value,
            "measured_hi": measured * ratio.interval.hi / ratio.value,
            "holds": row["predicted_lo"] <= measured <= row["predicted_hi"],
        }
        for row, measured, ratio in zip(rows, found, off, strict=True)
    )


def _kills_ranks(setup: Row, shared_every: int) -> bool:
    """Whether drawn failures kill ranks, or nodes that hold no versions: what the failures of other runs tell the costs of."""
    name = setup["history_name"]
    if name not in DRAWN:
        return False
    options = {**defaults_of(FAULTS[name].options), **json.loads(setup["history_options"])}
    return options["kind"] == KILL and (options["of"] == "rank" or shared_every == 1)


def _rates(checked: pd.DataFrame) -> Iterator[float]:
    """Failures in a second of training, of all intervals of a cell together."""
    for _, own in groups(checked, [*CELL, "history"]):
        hours = own["failures"] / own["failures_per_hour"]
        yield float(own["failures"].sum() / hours.sum()) / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class _Checked:
    """The runs that are predicted, and what others tell."""

    others: OtherRuns
    runs: pd.DataFrame
    failures: pd.DataFrame

    @classmethod
    def of(cls, tables: Tables) -> _Checked:
        runs = tables["runs"]
        drawn = runs["history_name"].isin(DRAWN)
        predicted = set(runs.loc[struck(runs) & drawn, "run"])
        return cls(OtherRuns.of(tables, predicted), runs, tables["failures"])

    def rows(self, own: pd.DataFrame, rate: float) -> Iterator[Row]:
        """Of the setups of one cell and trace, which differ in their interval."""
        cell = cell_of(records(own)[0])
        known = self.others.costs.get(cell)
        told = [each[cell] for each in (self.others.downs, self.others.pauses) if cell in each]
        number = max((len(each.events) for each in told), default=0)
        if known is None or number < FEWEST or not known[-1]["replaces"]:
            return
        found = _best(known[-1], rate)
        for setup in records(own):
            costs = _nearest(known, _steps(setup, known[-1]))
            predicted, measured, off, failures = self._compared(setup, costs)
            yield {
                **{name: setup[name] for name in SETUP},
                **found,
                "interval_steps": _steps(setup, known[-1]),
                "repeats": setup["paired_repeats"],
                "failures": failures,
                **sampling.estimate(predicted).columns("predicted"),
                "goodput": setup["goodput"],
                "measured": measured,
                "off": off,
            }

    def _compared(self, setup: Row, costs: Row) -> tuple[Floats, float, PerRepeat, int]:
        """Predicted goodput of the repeats together, (1 + draws,), what was measured, predicted ÷ measured time of each repeat, and the failures of all."""
        useful_s, all_s = np.zeros(1 + sampling.DRAWS), np.zeros(1 + sampling.DRAWS)
        works, walls, predicted, failures = [], [], [], 0
        random = np.random.default_rng(sampling.SEED)
        for run in self._runs(setup):
            strikes = self._strikes(run)
            work_s, wall_s = self._predicted(run, strikes, _steps(setup, costs), costs, random)
            works.append(work_s)
            walls.append(run["wall_s"])
            failures += len(strikes)
            predicted.append(_expected_s(wall_s, costs))
            useful_s += work_s
            all_s += wall_s
        goodput = useful_s / all_s
        goodput[0] = sum(works) / sum(predicted)
        return goodput, sum(works) / sum(walls), PerRepeat.ratio(predicted, walls), failures

    def _runs(self, setup: Row) -> list[Row]:
        """Those of the setup whose baseline is known."""
        runs = self.runs[_like(self.runs, setup, SETUP)]
        return records(runs[runs["baseline"].isin(self._whole()["run"])])

    def _strikes(self, run: Row) -> list[float]:
        """When failures struck it, in seconds since it began."""
        return sorted(self.failures.loc[self.failures["run"] == run["run"], "second"])

    def _predicted(
        self,
        run: Row,
        strikes: Sequence[float],
        steps: int,
        costs: Row,
        random: np.random.Generator,
    ) -> tuple[float, Floats]:
        """The work of the run and, (1 + draws,), how long it takes with a checkpoint every so many steps, both in seconds."""
        cell = cell_of(costs)
        downs, pauses = self.others.downs.get(cell), self.others.pauses.get(cell)
        step_s, work = float(self.others.step_s[run["run"]]), self._work_s(run)
        work_s = work * resampled(run_spread(self.others.works), random, sampling.DRAWS)
        down, pause = (
            resampled(run_spread(each.values()), random, sampling.DRAWS)
            for each in (self.others.downs, self.others.pauses)
        )
        lost = [
            Lost(
                down_s=down * _lasting(downs, sampling.down_s(costs), step_s, random),
                pause_s=pause * _lasting(pauses, sampling.pause_s(costs), step_s, random),
                survived=random.random(1 + sampling.DRAWS) < sampling.survived(costs),
            )
            for _ in strikes
        ]
        saving = self._saving(costs, random)
        return work, finished_s(strikes, lost, work_s, work_s * steps / run["steps"], saving)

    def _saving(self, costs: Row, random: np.random.Generator) -> Saving:
        """What a checkpoint of one run costs: the mean of all, where the costs have that of the steady state. Its version is durable as much sooner or later."""
        known = sampling.saving(costs)
        seen = self.others.stalls.get((*cell_of(costs), costs["interval"]))
        factor = resampled(run_spread(self.others.stalls.values()), random, sampling.DRAWS)
        if seen is not None and costs["stall_s"] > 0:
            factor = factor * seen.mean / costs["stall_s"]
        stall_s = known.stall_s * factor
        durable_s = known.durable_s + stall_s - known.stall_s
        return replace(known, stall_s=stall_s, durable_s=durable_s)

    def _work_s(self, run: Row) -> float:
        """What the run would take undisturbed, at the speed of its own steps."""
        between_s = float(self.others.between_s[self._baselines(run)].mean())
        return float(run["steps"] * self.others.step_s[run["run"]] + between_s)

    def _whole(self) -> pd.DataFrame:
        """Undisturbed runs. The time of one that was interrupted and continued is none."""
        return self.runs[(self.runs["history"] == WHOLE) & self.runs["timing_valid"]]

    def _baselines(self, run: Row) -> list[str]:
        """The baselines of all repeats."""
        whole = self._whole()
        recovery = whole.loc[whole["run"] == run["baseline"], "recovery"].iloc[0]
        alike = {**run, "interval": str(NEVER), "recovery": recovery}
        return list(whole.loc[_like(whole, alike, (*SYSTEM, "interval", "recovery")), "run"])


def _lasting(
    seen: Seen | None, known_s: Floats, step_s: float, random: np.random.Generator
) -> Floats:
    """Seconds of one recovery, (1 + draws,), without how far runs differ; where none was measured, of the costs."""
    if seen is None or not known_s[0] > 0:
        return known_s
    lasting_s: Floats = step_s * seen.mean * (known_s / known_s[0])
    return lasting_s * seen.event(random, sampling.DRAWS)


def _expected_s(wall_s: Floats, costs: Row) -> float:
    """At the mean of all costs, which comes first. Whether survivors go on is yes or no: where they do sometimes, the mean of the draws."""
    return float(wall_s[0] if costs["survived"] in (0.0, 1.0) else wall_s[1:].mean())


def _steps(setup: Row, costs: Row) -> int:
    return Interval.parse(setup["interval"]).steps(int(costs["steps_per_epoch"]))


def _nearest(known: Sequence[Row], steps: int) -> Row:
    """The costs of the interval nearest to so many steps: a checkpoint may cost less where there are more of them."""
    return min(known, key=lambda row: abs(math.log(_steps(row, row) / steps)))


def _like(runs: pd.DataFrame, row: Mapping[str, Any], names: Sequence[str]) -> pd.Series[bool]:
    return (runs[list(names)] == pd.Series({name: row[name] for name in names})).all(axis=1)


def _best(costs: Row, failures_per_s: float) -> Row:
    """By the model, where all failures come at this rate and are survived as often as those that were measured.

    They kill ranks, so versions at the local tiers are left.
    """
    recovering = Recovering(
        down_s=costs["down_s"], survived=costs["survived"], pause_s=max(costs["pause_s"], 0.0)
    )
    saving = Saving(
        stall_s=costs["stall_s"],
        durable_s=max(costs["durable_s"], costs["stall_s"]),
        slowdown_s=float(np.asarray(sampling.saving(costs).slowdown_s)[0]),
    )
    slower = sampling.slower(costs)[0]
    step_s = costs["step_s"] * slower
    found = best(saving, recovering, failures_per_s, step_s=step_s, slower=slower)
    return {
        "best_steps": float(found.steps),
        "fine_from_steps": float(found.fine_from_steps),
        "fine_to_steps": float(found.fine_to_steps),
    }
