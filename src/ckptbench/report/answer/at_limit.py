"""What a job loses at its time limit, without and with a save at a signal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from ckptbench.decide.costs import Saving
from ckptbench.decide.limit import Limit
from ckptbench.report.answer.programs import signal_s
from ckptbench.report.answer.quantities import Quantity

TORCHRUN_S = 30.0
"""So long after it got SIGTERM, torchrun of PyTorch 2.13 sends SIGKILL to its ranks, if `--shutdown-timeout` says nothing else."""
LATE = "kills its ranks 30 s after a SIGTERM: start them by srun without it, or give it --shutdown-timeout {seconds} (PyTorch 2.13)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLimit:
    """What a job loses at its time limit."""

    lost_s: float
    """Work at the best interval, on average, if training does not save at a signal."""
    stop_s: float
    """So long a stop takes: a step ends first, then training saves."""
    interval_s: float
    """The best one if training saves at a signal. Infinite where no other save is needed."""
    loses: Quantity
    """At that interval."""

    @property
    def signal_s(self) -> int:
        """So long before the limit the signal is to come."""
        return signal_s(self.stop_s)

    @property
    def is_late_by_torchrun(self) -> bool:
        """Whether torchrun kills its ranks before they have saved."""
        return self.stop_s > TORCHRUN_S

    @classmethod
    def of(cls, limit: Limit, saving: Saving, best: tuple[float, float], *, down_s: float, step_s: float, loses: Quantity) -> Self:  # fmt: skip
        """From the best intervals in seconds without and with a save at a signal."""
        best_s, saved_s = best
        needs_s = float(saving.durable_s)
        lost_s = best_s + needs_s - float(saving.period_s(best_s)) / 2
        is_needed = saved_s + needs_s <= limit.seconds - down_s
        return cls(
            lost_s=lost_s,
            stop_s=needs_s + step_s,
            interval_s=saved_s if is_needed else math.inf,
            loses=loses,
        )
