"""One reader's case, computed: for each strategy the best interval, what it loses, and what the interval in use loses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide import BETWEEN, RATE_FACTORS
from ckptbench.decide.costs import Recovering, Saving
from ckptbench.decide.losses import Losses
from ckptbench.decide.model import Best, Useful, best, by_phase
from ckptbench.decide.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from ckptbench.report.answer.at_limit import AtLimit
from ckptbench.report.answer.choice import Choice, fine_steps
from ckptbench.report.answer.labels import capitalized, counted
from ckptbench.report.answer.quantities import Every, Quantity, duration

if TYPE_CHECKING:
    from ckptbench.decide.costs import Notice
    from ckptbench.decide.limit import Limit
    from ckptbench.decide.rates import FailureRate


Floats = NDArray[np.float64]
FEW_SEEN = "only "
"""So begins the sentence on few failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """How often the job fails."""

    per_s: Floats
    """Failures in a second: the estimate, and where it has a 95 % interval the ends of that. Interval and loss of an answer lie between those of the ends."""
    said: str
    """A sentence on it."""
    sure: tuple[str, ...] = ()
    """Sentences on how sure it is."""
    doubts: tuple[str, ...] = ()
    """Sentences on what is not counted."""
    is_counted: bool
    """Whether failures of the reader's own machine were counted. Of any other rate the answer says what other rates would give."""
    is_bound: bool = False
    """Whether no failure was seen: the rate is at most this."""

    @classmethod
    def as_given(cls, mtbf_s: float) -> Self:
        """From a number of the reader."""
        said = f"Failures: one in {duration(mtbf_s)}, as you say."
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
            sure=how_sure(rate),
            doubts=doubts(rate),
            is_counted=rate.is_own_count,
            is_bound=rate.is_bound,
        )


def doubts(rate: FailureRate) -> tuple[str, ...]:
    """Sentences on what of a log is not counted."""
    return () if rate.log is None else tuple(f"{capitalized(each)}." for each in rate.log.doubts)


def how_sure(rate: FailureRate) -> tuple[str, ...]:
    """Further sentences on how sure a rate is. That few failures were counted is the first."""
    apart = () if rate.log is None else rate.log.doubts
    said = sorted(rate.said(), key=lambda each: not each.startswith(FEW_SEEN))
    return tuple(f"{capitalized(each)}." for each in said if each not in apart)


def _said(rate: FailureRate, gpus: int) -> str:
    often = f"one in {duration(rate.mean_hours(gpus) * SECONDS_PER_HOUR)} on {counted(gpus, 'GPU')}"
    whose = "as published of" if rate.is_published else "as in"
    if rate.is_bound:
        return f"Failures {whose} {rate.file.title}: at most {often}. Best intervals may be longer, and losses smaller."
    return f"Failures {whose} {rate.file.title}: {often}."


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
    notice: Notice | None = None
    """That of `recovering`."""
    size: float | None = None
    """Bytes of a checkpoint, where they are known."""

    @property
    def rates(self) -> Floats:
        """Those of `Failing`, and behind them `BETWEEN` more between their ends."""
        per_s = self.failing.per_s
        if len(per_s) == 1:
            return per_s
        return np.concatenate([per_s, np.geomspace(per_s[1], per_s[2], BETWEEN + 2)[1:-1]])

    def useful(self, strategy: Strategy, interval_s: Floats | float) -> Useful:
        """Goodput at `rates`."""
        return by_phase(interval_s, strategy.saving, self.recovering, self.rates, limit=self.limit)


def answer(case: Case) -> tuple[Choice, ...]:
    """Every strategy at its best interval, in the order in which they were given. All have the same interval in use."""
    useful = None if case.now is None else _useful_now(case, case.now)
    return tuple(_best(case, each, useful) for each in case.strategies)


def _loses(useful: Useful) -> Quantity:
    return _known(*(1 - each for each in useful))


def _saves(useful: Useful, now: Useful, gpus: int) -> Quantity:
    """GPU-hours a day against the interval in use."""
    return _known(*(HOURS_PER_DAY * gpus * each for each in useful.more_than(now)), ends=None)


def _useful_now(case: Case, now: Every) -> Useful:
    """At the interval in use."""
    return case.useful(case.strategies[0], now.in_steps(case.step_s) * case.step_s)


def _now(case: Case, now: Every, useful: Useful) -> Choice:
    steps = now.in_steps(case.step_s)
    return Choice(
        name=case.strategies[0].name,
        steps=Quantity(steps),
        interval_s=Quantity(steps * case.step_s),
        loses=_loses(useful),
        is_bound=case.failing.is_bound,
        waits_s=float(case.strategies[0].saving.waits_s(steps * case.step_s)),
        losses=_losses(case, case.strategies[0], steps * case.step_s),
    )


def _best(case: Case, strategy: Strategy, now: Useful | None) -> Choice:
    found = _found(case, strategy, case.rates, case.limit)
    useful = case.useful(strategy, found.interval_s)
    choice = Choice(
        name=strategy.name,
        steps=_known(found.steps),
        interval_s=_known(found.interval_s),
        loses=_loses(useful),
        fine_steps=fine_steps(found.fine_from_steps[0], found.fine_to_steps[0]),
        is_bound=case.failing.is_bound,
        is_async=bool(np.any(strategy.saving.durable_s > strategy.saving.stall_s)),
        waits_s=float(strategy.saving.waits_s(found.interval_s[0])),
        other_s=_at_other_rates(case, strategy),
        at_limit=_at_limit(case, strategy, float(found.interval_s[0])),
        losses=_losses(case, strategy, float(found.interval_s[0])),
        saved_s=float(strategy.saving.durable_s),
        bytes=case.size,
    )
    if now is None or case.now is None:
        return choice
    return replace(choice, now=_now(case, case.now, now), saves=_saves(useful, now, case.gpus))


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
    return AtLimit.of(case.limit, strategy.saving, both_s, down_s=down_s, step_s=case.step_s, loses=_known(1 - found.goodput))  # fmt: skip


def _losses(case: Case, strategy: Strategy, interval_s: float) -> Losses:
    rates = case.failing.per_s[:1]
    return Losses.of(interval_s, strategy.saving, case.recovering, rates, limit=case.limit)


def _at_other_rates(case: Case, strategy: Strategy) -> tuple[float, float] | None:
    if case.failing.is_counted:
        return None
    rates = case.failing.per_s[0] * np.array(RATE_FACTORS)
    found = _found(case, strategy, rates, case.limit, fine=False)
    rarer_s, oftener_s = found.interval_s
    return float(rarer_s), float(oftener_s)


RATES = 3
"""The rates of `Failing`, if it has an interval."""


def _known(values: Floats, *others: Floats, ends: int | None = RATES) -> Quantity:
    """From its values at the rates of a case, of which the first `ends` count: the ends are the lowest and the highest, of `others` too."""
    every = np.array([values, *others])[:, :ends]
    if len(values) == 1 and every.min() == every.max():
        return Quantity(float(values[0]))
    return Quantity(float(values[0]), float(every.min()), float(every.max()))
