"""One reader's case, computed: for each strategy the best interval, what it loses, and what the interval in use loses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide import RATE_FACTORS
from ckptbench.decide.model import Best, Recovering, Saving, best, goodput
from ckptbench.decide.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from ckptbench.report.answer.quantities import Every, Quantity, duration

if TYPE_CHECKING:
    from ckptbench.decide.limit import Limit
    from ckptbench.decide.rates import FailureRate


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """How often the job fails."""

    per_s: Floats
    """Failures in a second: the estimate, and where it has a 95 % interval the ends of that. Interval and loss of an answer lie between those of the ends."""
    said: str
    """A sentence on it."""
    is_counted: bool
    """Whether failures of the reader's own machine were counted. Of any other rate the answer says what other rates would give."""
    is_bound: bool = False
    """Whether no failure was seen: the rate is at most this."""

    @classmethod
    def as_given(cls, mtbf_s: float) -> Self:
        """From a number of the reader."""
        said = f"Failures: one in {duration(mtbf_s)}, as given."
        return cls(per_s=np.array([1 / mtbf_s]), said=said, is_counted=False)

    @classmethod
    def of(cls, rate: FailureRate, gpus: int) -> Self:
        """From a rate, at so many GPUs."""
        hours = [rate.mean_gpu_hours]
        if 0 < rate.lo < rate.hi < math.inf:
            hours += [rate.lo, rate.hi]
        return cls(
            per_s=gpus / (np.array(hours) * SECONDS_PER_HOUR),
            said=_said(rate, gpus),
            is_counted=rate.is_own_count,
            is_bound=rate.is_bound,
        )


def _said(rate: FailureRate, gpus: int) -> str:
    often = duration(rate.mean_hours(gpus) * SECONDS_PER_HOUR)
    whose = (
        f"as published of {rate.file.title}" if rate.is_published else f"as in {rate.file.title}"
    )
    sure = f" ({'; '.join(rate.said())})" if any(rate.said()) else ""
    if rate.is_bound:
        return f"Failures {whose}: at most one in {often} on {gpus:,} GPUs{sure}. So intervals may be longer, and less is lost."
    return f"Failures {whose}: one in {often} on {gpus:,} GPUs{sure}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What its checkpoints cost."""

    name: str
    saving: Saving


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is asked for."""

    gpus: int
    step_s: float
    strategies: tuple[Strategy, ...]
    recovering: Recovering
    failing: Failing
    now: Every | None
    """The interval in use, of the first strategy."""
    limit: Limit | None = None
    """Of the time of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLimit:
    """What a job loses at its time limit."""

    lost_s: float
    """Work at the best interval, on average, if training does not save at a signal."""
    needs_s: float
    """So long before the limit the signal must come."""
    interval_s: float
    """The best one if training saves at a signal. Infinite where no other save is needed."""
    loses: Quantity
    """At that interval."""

    @classmethod
    def of(cls, limit: Limit, saving: Saving, down_s: float, best: tuple[float, float], loses: Quantity) -> Self:  # fmt: skip
        """From the best intervals in seconds without and with a save at a signal."""
        best_s, signal_s = best
        needs_s = float(saving.durable_s)
        lost_s = best_s + needs_s - float(saving.period_s(best_s)) / 2
        is_needed = signal_s + needs_s <= limit.seconds - down_s
        return cls(
            lost_s=lost_s,
            needs_s=needs_s,
            interval_s=signal_s if is_needed else math.inf,
            loses=loses,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A strategy at its best interval, or at the one in use."""

    name: str
    steps: Quantity
    interval_s: Quantity
    """In useful time."""
    loses: Quantity
    """The part of the time that is not useful."""
    is_least: bool = False
    """Whether more is lost, as a log does not tell when its asynchronous saves are finished."""
    fine_steps: tuple[int, int] | None = None
    """The shortest and the longest interval that are fine. None for the interval in use, and where the best one loses more than half."""
    saves_gpu_hours: float | None = None
    """A day, against the interval in use. None where that is not given."""
    now: Choice | None = None
    """What the interval in use is and loses. None where it is not given."""
    is_bound: bool = False
    """Whether it is of a rate that is at most so high: then the interval may be longer, and less is lost."""
    is_async: bool = False
    """Whether training goes on before a checkpoint is durable."""
    waits_s: float = 0.0
    """For how long each save waits for the one before."""
    other_s: tuple[float, float] | None = None
    """The best interval in seconds where failures come a third, and three times, as often. None where the rate has an interval of its own."""
    at_limit: AtLimit | None = None
    """None without a time limit."""


def answer(case: Case) -> tuple[Choice, ...]:
    """Every strategy at its best interval, in the order in which they were given. All have the same interval in use."""
    useful = None if case.now is None else _useful_now(case, case.now)
    return tuple(_best(case, each, useful) for each in case.strategies)


def _useful_now(case: Case, now: Every) -> Floats:
    """Goodput at the interval in use."""
    interval_s = now.in_steps(case.step_s) * case.step_s
    saving = case.strategies[0].saving
    return np.asarray(
        goodput(interval_s, saving, case.recovering, case.failing.per_s, limit=case.limit)
    )


def _now(case: Case, now: Every, useful: Floats) -> Choice:
    steps = now.in_steps(case.step_s)
    return Choice(
        name=case.strategies[0].name,
        steps=Quantity(steps),
        interval_s=Quantity(steps * case.step_s),
        loses=_known(1 - useful),
        is_bound=case.failing.is_bound,
        waits_s=float(case.strategies[0].saving.waits_s(steps * case.step_s)),
    )


def _best(case: Case, strategy: Strategy, useful: Floats | None) -> Choice:
    found = _found(case, strategy, case.failing.per_s, case.limit)
    choice = Choice(
        name=strategy.name,
        steps=_known(found.steps),
        interval_s=_known(found.interval_s),
        loses=_known(1 - found.goodput),
        fine_steps=fine_steps(found.fine_from_steps[0], found.fine_to_steps[0]),
        is_bound=case.failing.is_bound,
        is_async=bool(np.any(strategy.saving.durable_s > strategy.saving.stall_s)),
        waits_s=float(strategy.saving.waits_s(found.interval_s[0])),
        other_s=_at_other_rates(case, strategy),
        at_limit=_at_limit(case, strategy, float(found.interval_s[0])),
    )
    if useful is None or case.now is None:
        return choice
    saved = HOURS_PER_DAY * case.gpus * float(found.goodput[0] - useful[0])
    return replace(choice, now=_now(case, case.now, useful), saves_gpu_hours=saved)


def _found(
    case: Case, strategy: Strategy, rates: Floats, limit: Limit | None, *, fine: bool = True
) -> Best:
    saving, recovering = strategy.saving, case.recovering
    return best(saving, recovering, rates, step_s=case.step_s, fine=fine, limit=limit)


def _at_limit(case: Case, strategy: Strategy, best_s: float) -> AtLimit | None:
    if case.limit is None:
        return None
    signal = replace(case.limit, at_signal=True)
    found = _found(case, strategy, case.failing.per_s, signal, fine=False)
    down_s, both_s = float(case.recovering.down_s), (best_s, float(found.interval_s[0]))
    return AtLimit.of(case.limit, strategy.saving, down_s, both_s, _known(1 - found.goodput))


def fine_steps(shortest: float, longest: float) -> tuple[int, int] | None:
    """The two in whole numbers. None where they are NaN, as no interval is fine."""
    return None if math.isnan(shortest) else (int(shortest), int(longest))


def _at_other_rates(case: Case, strategy: Strategy) -> tuple[float, float] | None:
    if case.failing.is_counted:
        return None
    rates = case.failing.per_s[0] * np.array(RATE_FACTORS)
    found = _found(case, strategy, rates, case.limit, fine=False)
    rarer_s, oftener_s = found.interval_s
    return float(rarer_s), float(oftener_s)


def _known(values: Floats) -> Quantity:
    """From its values at the rates of `Failing`: the ends are the lowest and the highest."""
    if len(values) == 1:
        return Quantity(float(values[0]))
    return Quantity(float(values[0]), float(values[1:].min()), float(values[1:].max()))
