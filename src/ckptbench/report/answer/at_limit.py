"""What a job loses at its time limit, without and with a save at a signal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from ckptbench.decide.costs import Saving
from ckptbench.decide.limit import Limit
from ckptbench.report.answer.quantities import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLimit:
    """What a job loses at its time limit."""

    lost_s: float
    """Work at the best interval, on average, if training does not save at a signal."""
    warning_s: float
    """So long before the limit the signal must come: a step ends first, then training saves."""
    interval_s: float
    """The best one if training saves at a signal. Infinite where no other save is needed."""
    loses: Quantity
    """At that interval."""

    @classmethod
    def of(cls, limit: Limit, saving: Saving, best: tuple[float, float], *, down_s: float, step_s: float, loses: Quantity) -> Self:  # fmt: skip
        """From the best intervals in seconds without and with a save at a signal."""
        best_s, signal_s = best
        needs_s = float(saving.durable_s)
        lost_s = best_s + needs_s - float(saving.period_s(best_s)) / 2
        is_needed = signal_s + needs_s <= limit.seconds - down_s
        return cls(
            lost_s=lost_s,
            warning_s=needs_s + step_s,
            interval_s=signal_s if is_needed else math.inf,
            loses=loses,
        )
