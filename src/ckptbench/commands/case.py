"""One reader's case, computed: for each strategy the best interval, what it loses, and what the interval in use loses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.answer.quantities import Every, tells
from ckptbench.commands.failing import Failing
from ckptbench.decide import OTHERS
from ckptbench.decide.model import Recovering, Saving, best, goodput
from ckptbench.decide.units import HOURS_PER_DAY

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Known:
    """A number, and the ends of its 95 % interval: NaN where nothing says how far it differs."""

    value: float
    lo: float = math.nan
    hi: float = math.nan

    @classmethod
    def of(cls, values: Floats) -> Self:
        """At each of the rates of `Failing`: the ends are the lowest and the highest."""
        if len(values) == 1:
            return cls(float(values[0]))
        return cls(float(values[0]), float(values[1:].min()), float(values[1:].max()))

    @property
    def tells(self) -> bool:
        """Whether its interval is narrow enough for the number to be said."""
        return tells(self.lo, self.hi)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A strategy at its best interval, or at the one in use."""

    name: str
    steps: Known
    interval_s: Known
    """In useful time."""
    loses: Known
    """The part of the time that is not useful."""
    fine_steps: tuple[int, int] | None = None
    """The shortest and the longest interval that lose at most a fifth more than the best. None for the interval in use."""
    saves_gpu_hours: float | None = None
    """A day, against the interval in use. None where that is not given."""
    now: Choice | None = None
    """What the interval in use is and loses. None where it is not given."""
    other_s: tuple[float, float] | None = None
    """The best interval in seconds where failures come a third, and three times, as often. None where the rate has an interval of its own."""


def answer(case: Case) -> tuple[Choice, ...]:
    """Every strategy at its best interval, in the order in which they were given. All have the same interval in use."""
    useful = None if case.now is None else _useful_now(case, case.now)
    return tuple(_best(case, each, useful) for each in case.strategies)


def _useful_now(case: Case, now: Every) -> Floats:
    """Goodput at the interval in use."""
    interval_s = now.in_steps(case.step_s) * case.step_s
    saving = case.strategies[0].saving
    return np.asarray(goodput(interval_s, saving, case.recovering, case.failing.per_s))


def _now(case: Case, now: Every, useful: Floats) -> Choice:
    steps = now.in_steps(case.step_s)
    return Choice(
        name=case.strategies[0].name,
        steps=Known(steps),
        interval_s=Known(steps * case.step_s),
        loses=Known.of(1 - useful),
    )


def _best(case: Case, strategy: Strategy, useful: Floats | None) -> Choice:
    found = best(strategy.saving, case.recovering, case.failing.per_s, step_s=case.step_s)
    choice = Choice(
        name=strategy.name,
        steps=Known.of(found.steps),
        interval_s=Known.of(found.interval_s),
        loses=Known.of(1 - found.goodput),
        fine_steps=(int(found.fine_from_steps[0]), int(found.fine_to_steps[0])),
        other_s=_at_other_rates(case, strategy),
    )
    if useful is None or case.now is None:
        return choice
    saved = HOURS_PER_DAY * case.gpus * float(found.goodput[0] - useful[0])
    return replace(choice, now=_now(case, case.now, useful), saves_gpu_hours=saved)


def _at_other_rates(case: Case, strategy: Strategy) -> tuple[float, float] | None:
    if case.failing.is_counted:
        return None
    rates = case.failing.per_s[0] * np.array(OTHERS)
    found = best(strategy.saving, case.recovering, rates, step_s=case.step_s, fine=False)
    rarer_s, oftener_s = found.interval_s
    return float(rarer_s), float(oftener_s)
