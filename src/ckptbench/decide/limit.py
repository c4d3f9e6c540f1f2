"""A job that its scheduler ends after a limit: what that loses, at any interval.

A job begins with the restart, of R, and ends by a failure or at its limit T; then the next one begins, with a limit of its own. Work goes on from the newest
version that is durable. Failures apart, a version of the work I is durable after R + g + L, R + g + 2 L and so on, with L and g as in `formulas`. The end may fall
anywhere in a period: step times differ more over a whole job than an interval is long. So on average the work of R + g + L / 2 before it is lost, and the versions
of a time A = T - R - g - L / 2 count. Of the sum over all versions, which is the goodput without a limit, these are the part

    (1 - e^(-λA)) / (1 - e^(-λT)),

as a job lasts (1 - e^(-λT)) / λ on average. No version counts where I + D > T - R. With fewer than `formulas.MANY_SAVES` in a job it matters where the limit falls
between two versions: A is T - R - g just after one is durable, and T - R - g - L just before. If all takes exactly as long as it is said to, the n versions that fit
count, A = n L: `exactly`.

With a save at a signal that comes D before the end, the job loses D and R there, whatever the interval. What that saves is the work since the newest version, on
average I² / 2L, in the part e^(-λT) of the jobs that reach the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide import formulas
from ckptbench.decide.costs import Recovering, Saving
from ckptbench.decide.formulas import LARGEST, Floats, decay

AVERAGE = 0.5
"""Of a period: so much has passed on average since the last version when the limit comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The time limit of a job."""

    seconds: float
    at_signal: bool = False
    """Whether training saves at a signal before it."""
    since: float = AVERAGE
    """The part of a period that has passed at the limit since the last version, where few fit into a job."""

    @property
    def ends(self) -> tuple[Limit, Limit]:
        """The same where the limit falls just after a version is durable, and just before. With a save at the signal that is all one."""
        if self.at_signal:
            return self, self
        return replace(self, since=0.0), replace(self, since=1.0)

    def leaves(
        self,
        useful: Floats,
        interval_s: Floats,
        saving: Saving,
        recovering: Recovering,
        failures_per_s: Floats,
    ) -> NDArray[np.float64]:
        """The goodput with the limit. `useful` is that without it."""
        ending_s = np.asarray(failures_per_s * (1 - np.asarray(recovering.survived)))
        kept = formulas.limited(
            useful, interval_s, ending_s, saving.stall_s, saving.durable_s, saving.slowdown_s, recovering.down_s, self.seconds, self.since
        )  # fmt: skip
        if not self.at_signal:
            return np.asarray(kept)
        period_s = saving.period_s(interval_s)
        has_version = interval_s + saving.durable_s <= self.seconds - recovering.down_s
        whole_s = np.maximum(self.seconds - recovering.down_s - saving.durable_s, 0.0)
        since_s = np.where(has_version, interval_s * interval_s / (2 * period_s), whole_s)
        reaching = np.exp(-np.minimum(ending_s * self.seconds, LARGEST))
        return np.asarray(kept + reaching * since_s / self._lasts_s(ending_s))

    def exactly(
        self,
        useful: Floats,
        interval_s: Floats,
        saving: Saving,
        recovering: Recovering,
        failures_per_s: Floats,
    ) -> Floats | None:
        """The goodput if all takes exactly as long as it is said to. None of many versions, and of none. Of arrays the first element decides."""
        ending_s = np.asarray(failures_per_s * (1 - np.asarray(recovering.survived)))
        period_s = saving.period_s(interval_s)
        rest_s = np.maximum(self.seconds - recovering.down_s - saving.lag_s(interval_s), 0.0)
        saves = np.floor(rest_s / period_s)
        if not 1 <= saves.flat[0] < formulas.MANY_SAVES:
            return None
        return np.asarray(useful * self._part(saves * period_s, ending_s))

    def restarts_alone(
        self, useful: Floats, recovering: Recovering, failures_per_s: Floats
    ) -> NDArray[np.float64]:
        """The same where nothing but restarts takes time."""
        ending_s = np.asarray(failures_per_s * (1 - np.asarray(recovering.survived)))
        rest_s = np.maximum(self.seconds - recovering.down_s, 0.0)
        return np.asarray(useful * self._part(rest_s, ending_s))

    def _part(self, seconds: Floats, ending_s: Floats) -> Floats:
        """(1 - e^(-λA)) / (1 - e^(-λT)), also where nothing fails."""
        return formulas.kept_by_limit(seconds, ending_s, self.seconds)

    def _lasts_s(self, ending_s: Floats) -> Floats:
        """How long a job lasts on average."""
        return self.seconds * decay(ending_s * self.seconds)
