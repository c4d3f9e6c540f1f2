"""The tables `advice`, `scale` and `goodput_curves`: how often to checkpoint, with what, and how to recover."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.analysis.tables.schema import Column, Row, Table, with_ends
from ckptbench.config.decision import DecisionSection
from ckptbench.decide import RATE_FACTORS, sampling
from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.inputs import COSTED, COSTED_COLUMNS, GIVEN
from ckptbench.decide.model import Best, Useful, best, by_phase
from ckptbench.decide.projection import projected, projection
from ckptbench.decide.rates import FailureRate
from ckptbench.decide.units import HOURS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import natural
from ckptbench.matrix.registry import FORMAT_LABELS, STRATEGIES

if TYPE_CHECKING:
    from ckptbench.decide.costs import Notice
    from ckptbench.decide.limit import Limit

Floats = NDArray[np.float64]
Costs = TypeVar("Costs", Saving, Recovering, GlobalTier)

CASE_COLUMNS = (
    *COSTED_COLUMNS,
    Column("rate", "text", "", "the failure rate: name of its file"),
    Column("gpus", "integer", "1", "training together"),
    Column("projected", "flag", "", "whether these are more than measured"),
    Column("projection", "text", "", "how costs there were estimated: `fit` to several numbers of ranks, or `constant`"),
)  # fmt: skip
CASE = (*COSTED, "rate", "gpus")
OTHER_RATES = {"rarer": "a third as often", "oftener": "three times as often"}
"""Other failure rates than the one that was chosen, `RATE_FACTORS` times as high, by the ends of columns."""
ADVICE = Table(
    "advice",
    "One row per setup, recovery, failure rate and number of GPUs: how often to checkpoint. 95 % intervals come from 400 draws of the"
    " measured costs and the failure rate.",
    CASE,
    (
        *CASE_COLUMNS,
        Column("survived", "number", "1", "fraction of failures after which survivors are assumed to continue"),
        *with_ends("hours_between_failures", "h", "of all GPUs together"),
        *with_ends("best_steps", "steps", "between two checkpoints, with the highest goodput"),
        *with_ends("best_minutes", "min", "the same interval in useful time"),
        Column("fine_from_steps", "number", "steps", "shortest interval that is fine; missing if the best one loses more than half"),
        Column("fine_to_steps", "number", "steps", "longest one"),
        Column("fine_from_minutes", "number", "min", "the same in useful time"),
        Column("fine_to_minutes", "number", "min", "the same in useful time"),
        *with_ends("goodput", "1", "useful fraction of the time, at the best interval"),
        *(
            column
            for name, words in OTHER_RATES.items()
            for column in (
                Column(f"best_minutes_{name}", "number", "min", f"the best interval if failures came {words}"),
                Column(f"goodput_{name}", "number", "1", "at that interval"),
            )
        ),
        Column("in_use_steps", "number", "steps", "the interval of the setup; missing if a user entered none"),
        *with_ends("goodput_in_use", "1", "at the interval of the setup"),
        Column("today", "flag", "", "whether savings are compared with the interval of this row: the first strategy of the same system, recovery and number of GPUs; of a user's costs the first strategy and recovery"),
        *with_ends("saved_gpu_hours", "GPU-h", "saved per day by the best interval, compared with the interval of the row `today`"),
        Column("is_best", "flag", "", "whether no other `representative` setup and recovery of this system has a higher goodput at its best interval"),
        Column("p_best", "number", "1", "fraction of draws in which none of them is better"),
        Column("p_strictly_best", "number", "1", "of the best setup: fraction of draws in which it beats all others; missing if any cost was measured once"),
    ),
)  # fmt: skip
SCALE = Table(
    "scale",
    "One row per setup, recovery and number of GPUs, at the chosen failure rate: the highest goodput.",
    CASE,
    (
        *CASE_COLUMNS,
        *with_ends("goodput", "1", "useful fraction of the time, at the best interval"),
    ),
)
GOODPUT_CURVES = Table(
    "goodput_curves",
    "One row per setup, recovery, number of GPUs and interval, at the chosen failure rate.",
    (*CASE, "interval_minutes"),
    (
        *CASE_COLUMNS,
        Column("interval_minutes", "number", "min", "between two checkpoints, in useful time"),
        *with_ends("goodput", "1", "useful fraction of the time"),
    ),
)

DIFFERING = ("step_s", "stall_s", "durable_s", "down_s")
"""Costs whose interval is missing only if they were measured once."""
MOST_GPUS = 131_072
"""Largest number of GPUs in the table `scale`."""
POINTS = 61
"""Points of each curve."""
BEYOND = 10.0
"""The factor by which curves go on beyond the range in which the interval hardly matters."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One row of `decision_costs` at some failure rate and number of GPUs. Arrays have shape (1 + draws,)."""

    row: Row
    rate: FailureRate
    gpus: int
    step_s: Floats
    """With this recovery and strategy."""
    slower: Floats
    """By how much that is longer than a usual step. Useful is only what this one takes."""
    saving: Saving
    recovering: Recovering
    global_tier: GlobalTier | None
    failures_per_s: Floats
    limit: Limit | None

    @classmethod
    def of(
        cls,
        row: Row,
        rate: FailureRate,
        gpus: int,
        choices: DecisionSection,
        *,
        limit: Limit | None,
        notice: Notice | None,
    ) -> _Case:
        row = projected(row, gpus)
        slower, saving = sampling.slower(row), sampling.saving(row)
        step_s = slower * sampling.step_s(row)
        recovering, global_tier = (
            sampling.recovering(row, gpus, choices),
            sampling.global_tier(row, gpus),
        )
        if notice is not None:
            recovering = notice.before(recovering, step_s)
        return cls(
            row=row,
            rate=rate,
            gpus=gpus,
            step_s=step_s,
            slower=slower,
            saving=saving,
            recovering=recovering,
            global_tier=global_tier,
            failures_per_s=sampling.failures_per_s(rate, gpus),
            limit=limit,
        )

    @cached_property
    def best(self) -> Best:
        """Without the range that is fine."""
        return best(
            self.saving,
            self.recovering,
            self.failures_per_s,
            step_s=self.step_s,
            global_tier=self.global_tier,
            slower=self.slower,
            fine=False,
            limit=self.limit,
        )

    @cached_property
    def estimate(self) -> Best:
        """Of the estimate alone, with that range, at this rate and at `RATE_FACTORS` times it: shape (3,)."""
        return best(
            _estimate(self.saving),
            _estimate(self.recovering),
            self.failures_per_s[0] * np.array([1.0, *RATE_FACTORS]),
            step_s=self.step_s[0],
            global_tier=self.global_tier and _estimate(self.global_tier),
            slower=self.slower[0],
            limit=self.limit,
        )

    @property
    def key(self) -> Row:
        return {
            **{name: self.row[name] for name in COSTED},
            "rate": self.rate.name,
            "gpus": self.gpus,
            "projected": self.gpus > self.row["ranks"],
            "projection": projection(self.row) if self.gpus > self.row["ranks"] else "",
        }

    @property
    def system(self) -> tuple[Any, ...]:
        return tuple(self.row[name] for name in SYSTEM)

    @property
    def place(self) -> tuple[Any, ...]:
        """By which strategies are in the order of figures."""
        strategy, format_ = self.row["strategy"], self.row["format"]
        known = ((self.row["strategy_name"], STRATEGIES), (format_, FORMAT_LABELS))
        first, last = (([*names, name].index(name), natural(name)) for name, names in known)
        return first, natural(strategy), last

    def useful(self, interval_s: Floats) -> Useful:
        return by_phase(
            interval_s,
            self.saving,
            self.recovering,
            self.failures_per_s,
            self.global_tier,
            slower=self.slower,
            limit=self.limit,
        )


def advice(
    costs: pd.DataFrame,
    rates: Iterable[FailureRate],
    choices: DecisionSection,
    limit: Limit | None = None,
    notice: Notice | None = None,
) -> pd.DataFrame:
    """From the table `decision_costs`: for each rate, at the measured number of ranks and at those that were chosen. `limit` is that of a job, and `notice` comes before failures."""
    return ADVICE.rows(
        {**case.key, **_advice(case, *today), **winning}
        for rate in rates
        for cases in _together(
            costs, rate, choices, lambda ranks: choices.gpus, limit=limit, notice=notice
        )
        for case, winning, today in zip(cases, _winning(cases), _against(cases), strict=True)
    )


def scale(costs: pd.DataFrame, rate: FailureRate, choices: DecisionSection) -> pd.DataFrame:
    """From the table `decision_costs`: at the measured number of ranks, and at its doubles up to `MOST_GPUS`."""
    costs = costs[costs["representative"]]
    return SCALE.rows(
        {**case.key, **sampling.estimate(case.best.goodput).columns("goodput")}
        for cases in _together(costs, rate, choices, _doubles)
        for case in cases
    )


def goodput_curves(
    costs: pd.DataFrame, rate: FailureRate, choices: DecisionSection
) -> pd.DataFrame:
    """From the table `decision_costs`: at the measured number of ranks and at those that were chosen."""
    costs = costs[costs["representative"]]
    return GOODPUT_CURVES.rows(
        {**case.key, **point}
        for cases in _together(costs, rate, choices, lambda ranks: choices.gpus)
        for case in cases
        for point in _curve(case)
    )


def _doubles(ranks: int) -> Sequence[int]:
    return [ranks << power for power in range(1, MOST_GPUS.bit_length()) if ranks << power <= MOST_GPUS]  # fmt: skip


def _together(
    costs: pd.DataFrame,
    rate: FailureRate,
    choices: DecisionSection,
    numbers: Any,
    *,
    limit: Limit | None = None,
    notice: Notice | None = None,
) -> Iterator[list[_Case]]:
    """The cases of one system and number of GPUs, which are compared with one another."""
    for system, rows in groups(costs, SYSTEM) if len(costs) else ():
        ranks, of_system = int(system["ranks"]), records(rows)
        for gpus in (ranks, *(number for number in numbers(ranks) if number > ranks)):
            yield [
                _Case.of(row, rate, gpus, choices, limit=limit, notice=notice) for row in of_system
            ]


def _winning(cases: Sequence[_Case]) -> list[Row]:
    """Which case has the highest goodput, and in which part of the draws."""
    counts = [case for case in cases if case.row["representative"]]
    goodputs = np.stack([case.best.goodput for case in counts])
    first = counts[int(goodputs[:, 0].argmax())]
    highest = goodputs.max(axis=0)
    return [
        {
            "is_best": case is first,
            "p_best": float((case.best.goodput >= highest)[1:].mean()),
            "p_strictly_best": _alone(case, [each for each in counts if each is not first])
            if case is first
            else None,
        }
        if case.row["representative"]
        else {"is_best": False}
        for case in cases
    ]


def _alone(first: _Case, others: Sequence[_Case]) -> float:
    """The part of the draws in which `first` beats all others. NaN if a cost of one was measured once."""
    if not others:
        return 1.0
    if any(_is_certain(case.row) for case in (first, *others)):
        return math.nan
    highest = np.max([case.best.goodput for case in others], axis=0)
    return float((first.best.goodput > highest)[1:].mean())


def _is_certain(row: Row) -> bool:
    """Whether a cost of it was measured once. What a user gives is as certain as it is given."""
    return row["framework"] != GIVEN and any(math.isnan(row[f"{name}_lo"]) for name in DIFFERING)


def _against(cases: Sequence[_Case]) -> Iterator[tuple[_Case, Useful]]:
    """For each case the one whose interval in use it is compared with, and the goodput there."""
    shown = [case for case in cases if case.row["representative"]]
    given = [case for case in shown if case.row["framework"] == GIVEN and case.row["today"]]
    known: dict[str, tuple[_Case, Useful]] = {}
    for case in cases:
        recovery = case.row["recovery"]
        if recovery not in known:
            alike = given or [each for each in shown if each.row["recovery"] == recovery] or [case]
            today = min(alike, key=lambda each: each.place)
            known[recovery] = today, today.useful(_in_use_s(today))
        yield known[recovery]


def _in_use_s(case: _Case) -> Floats:
    """NaN where it is unknown."""
    return (_in_use_steps(case) or math.nan) * case.step_s


def _advice(case: _Case, today: _Case, of_today: Useful) -> Row:
    found, of_estimate = case.best, case.estimate
    in_use, useful = case.useful(_in_use_s(case)), case.useful(found.interval_s)
    saved = [HOURS_PER_DAY * case.gpus * each for each in useful.more_than(of_today)]
    return {
        "survived": float(np.asarray(case.recovering.survived)[0]),
        **sampling.estimate(1 / (case.failures_per_s * SECONDS_PER_HOUR)).columns(
            "hours_between_failures"
        ),
        **sampling.estimate(found.steps).columns("best_steps"),
        **sampling.estimate(found.interval_s / SECONDS_PER_MINUTE).columns("best_minutes"),
        **sampling.estimate(useful.average, useful.least, useful.most).columns("goodput"),
        **_in_time("fine_from", of_estimate.fine_from_steps, case),
        **_in_time("fine_to", of_estimate.fine_to_steps, case),
        **{
            f"best_minutes_{name}": float(found_s) / SECONDS_PER_MINUTE
            for name, found_s in zip(OTHER_RATES, of_estimate.interval_s[1:], strict=True)
        },
        **{
            f"goodput_{name}": float(useful)
            for name, useful in zip(OTHER_RATES, of_estimate.goodput[1:], strict=True)
        },
        "in_use_steps": _in_use_steps(case) or math.nan,
        **sampling.estimate(in_use.average, in_use.least, in_use.most).columns("goodput_in_use"),
        "today": case is today,
        **sampling.estimate(*saved).columns("saved_gpu_hours"),
    }


def _in_time(name: str, steps: Floats, case: _Case) -> Row:
    return {
        f"{name}_steps": float(steps[0]),
        f"{name}_minutes": float(steps[0] * case.step_s[0]) / SECONDS_PER_MINUTE,
    }


def _estimate(costs: Costs) -> Costs:
    """The same costs without their draws."""
    values: dict[str, Any] = {}
    for field in fields(costs):
        own = getattr(costs, field.name)
        values[field.name] = _estimate(own) if isinstance(own, Saving) else np.asarray(own).flat[0]
    return replace(costs, **values)


def _in_use_steps(case: _Case) -> int:
    return Interval.parse(case.row["interval"]).steps(int(case.row["steps_per_epoch"]))


def _curve(case: _Case) -> Iterator[Row]:
    """At whole steps, as far as the interval of the setup: where these are few, each of them. With the ends of the fine range, which may be narrow."""
    in_use = _in_use_steps(case)
    found = case.estimate
    # Where none is fine, these are NaN.
    fine_from = float(np.fmin(found.fine_from_steps[0], found.steps[0]))
    fine_to = float(np.fmax(found.fine_to_steps[0], found.steps[0]))
    shortest, longest = min(in_use, max(fine_from / BEYOND, 1.0)), max(in_use, fine_to * BEYOND)
    tried = np.round(np.geomspace(shortest, longest, POINTS))
    steps = np.unique([*tried, fine_from, fine_to])
    useful = case.useful(steps[:, None] * case.step_s).average
    for each, goodput in zip(steps, useful, strict=True):
        yield {
            "interval_minutes": float(each * case.step_s[0]) / SECONDS_PER_MINUTE,
            **sampling.estimate(goodput).columns("goodput"),
        }
