"""One strategy in an answer: at its best interval, or at the one in use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ckptbench.decide.losses import Losses
from ckptbench.decide.model import LEAST_USEFUL
from ckptbench.report.answer.at_limit import AtLimit
from ckptbench.report.answer.quantities import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A strategy at its best interval, or at the one in use."""

    name: str
    label: str = ""
    """Its name beside others of its block. Empty: `name`."""
    steps: Quantity
    interval_s: Quantity
    """In useful time."""
    loses: Quantity
    """The part of the time that is not useful."""
    is_least: bool = False
    """Whether more is lost, as a log does not tell when its asynchronous saves are finished."""
    fine_steps: tuple[int, int] | None = None
    """The shortest and the longest interval that are fine. None for the interval in use, and where the best one loses more than half."""
    saves: Quantity | None = None
    """GPU-hours a day, against the interval in use. None where that is not given."""
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
    losses: Losses | None = None
    """What the time is lost to."""
    at_limit: AtLimit | None = None
    """None without a time limit."""
    saved_s: float = 0.0
    """How long a save takes until it is durable at all levels."""
    bytes: float | None = None
    """Of a checkpoint, where that is known."""

    @property
    def stop_s(self) -> float:
        """How long a save at a signal takes: a step ends first."""
        return self.saved_s + self.interval_s.value / self.steps.value

    @property
    def shown_name(self) -> str:
        return self.label or self.name

    @property
    def helps_nothing(self) -> bool:
        """Whether next to nothing gets done at the best interval either."""
        return self.loses.value > 1 - LEAST_USEFUL and not self.is_bound

    @property
    def depends_on_phase(self) -> bool:
        """Whether it matters where a time limit falls between two saves."""
        return self.losses is not None and self.losses.exactly is not None

    @property
    def is_conclusive(self) -> bool:
        """Whether its interval can be recommended."""
        return self.steps.is_conclusive and not self.helps_nothing

    @property
    def has_range(self) -> bool:
        """Whether its fine range is known. That of a bound is not: it lies higher where failures are rarer."""
        return self.fine_steps is not None and not (self.helps_nothing or self.is_bound)


def fine_steps(shortest: float, longest: float) -> tuple[int, int] | None:
    """The two in whole numbers. None where they are NaN, as no interval is fine."""
    return None if math.isnan(shortest) else (int(shortest), int(longest))
