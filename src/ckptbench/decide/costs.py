"""What a checkpoint and a failure cost. Times are in seconds; every number may be an array, as in `model`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ckptbench.decide import formulas
from ckptbench.decide.formulas import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What one checkpoint costs."""

    stall_s: Floats
    """Training is blocked."""
    durable_s: Floats
    """From the start of the save until its version can be gone on from. At least the stall."""
    slowdown_s: Floats = 0.0
    """What all steps together lose that are slower while it is written."""

    def lag_s(self, interval_s: Floats) -> Floats:
        """How much longer than a period the first version after a failure takes, from the start of training until it is durable.

        Below 0 where steps are slower after a version is durable.
        """
        return interval_s + self.durable_s - self.period_s(interval_s)

    def waits_s(self, interval_s: Floats) -> Floats:
        """How long each save waits for the one before, which is still being written."""
        return self.period_s(interval_s) - (interval_s + self.stall_s + self.slowdown_s)

    def period_s(self, interval_s: Floats) -> Floats:
        """From the start of a save to the start of the next one. That waits where this one is not durable yet."""
        return formulas.period_s(interval_s, self.stall_s, self.durable_s, self.slowdown_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """What one failure costs, apart from the work that is lost with it."""

    down_s: Floats
    """From a failure until training goes on from a version: detection, ending, launch, import, build and load."""
    survived: Floats = 0.0
    """The part of all failures that survivors go on from by themselves, without a version."""
    pause_s: Floats = 0.0
    """What such a failure costs: regrouping, steps done again, slower steps until a new rank has come."""
    announced: Floats = 0.0
    """The part of all failures that a warning comes before. `survived` is a part of the others."""
    notice_s: Floats = 0.0
    """From the end of the step in which it comes until the failure."""

    def in_time(self, needs_s: Floats) -> Floats:
        """The part of all failures that lose no work, where a save takes so long until it is durable."""
        return formulas.in_time(self.announced, self.notice_s, needs_s)

    def losing(self, needs_s: Floats) -> Floats:
        """The part that leads back to a version of before."""
        return (1 - self.in_time(needs_s)) * (1 - self.survived)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A warning before failures, as spot machines give one."""

    seconds: float
    """From it to the failure."""
    announced: float
    """The part of all failures before which it comes."""

    def before(self, recovering: Recovering, step_s: Floats) -> Recovering:
        """The same where it comes. A step ends first."""
        notice_s = np.maximum(self.seconds - step_s, 0.0)
        return replace(recovering, announced=self.announced, notice_s=notice_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTier:
    """Versions that are also written to a second level, which some failures leave alone."""

    saving: Saving
    every: int
    """Of so many versions of the first level, one goes to the second too."""
    needed: Floats
    """The part of the failures after which only the second level has versions."""
    down_s: Floats
    """As `Recovering.down_s`, where the version comes from the second level."""

    def as_one(self, local: Saving) -> Saving:
        """What a version of this level costs with all of the first level before it, which a job leaves behind at its end."""
        between_s = (self.every - 1) * local.stall_s
        slower_s = (self.every - 1) * local.slowdown_s
        durable_s = np.maximum(local.durable_s, self.saving.durable_s)
        return Saving(
            stall_s=between_s + local.stall_s + self.saving.stall_s,
            durable_s=between_s + slower_s + durable_s,
            slowdown_s=slower_s + local.slowdown_s + self.saving.slowdown_s,
        )


ONE_LEVEL = GlobalTier(saving=Saving(stall_s=0.0, durable_s=0.0), every=1, needed=0.0, down_s=0.0)
