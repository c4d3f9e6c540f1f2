"""What the time is lost to: saves, work that is done again, and restarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.formulas import Floats
from ckptbench.decide.limit import Limit
from ckptbench.decide.model import goodput, restarts_alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Parts of the time, from 0 to 1, which together are all that is lost."""

    saves: float
    """With steps that they slow down."""
    lost_work: float
    """Done since the version from which training goes on, with the saves in it."""
    restarts: float
    """With saves at the warnings before them."""
    at_limit: float = 0.0
    """By the ends of jobs at their time limit: work and restarts."""
    exactly: float | None = None
    """All that is lost if all takes exactly as long as it is said to. None unless few saves fit into a job, so that it matters where the limit falls between two."""

    @classmethod
    def of(
        cls,
        interval_s: Floats,
        saving: Saving,
        recovering: Recovering,
        failures_per_s: Floats,
        *,
        global_tier: GlobalTier | None = None,
        slower: Floats = 1.0,
        limit: Limit | None = None,
    ) -> Self:
        """At this interval. Of arrays the first element counts. `slower` is by how much a step takes longer than what is useful of it."""
        useful = goodput(interval_s, saving, recovering, failures_per_s, global_tier) / slower
        period_s = saving.period_s(interval_s)
        if global_tier is not None:
            longer_s = np.maximum(global_tier.saving.durable_s - period_s, 0.0)
            period_s = period_s + longer_s / global_tier.every
        saves = useful * (slower * period_s / interval_s - 1)
        restarts = 1 - restarts_alone(saving, recovering, failures_per_s, global_tier)
        lost_work = np.maximum(1 - useful - saves - restarts, 0.0)
        limited = goodput(interval_s, saving, recovering, failures_per_s, global_tier, limit=limit)
        parts = (saves, lost_work, restarts, useful - limited / slower)
        first = [float(np.asarray(each).flat[0]) for each in parts]
        return cls(
            saves=first[0],
            lost_work=first[1],
            restarts=first[2],
            at_limit=first[3],
            exactly=_exactly(
                interval_s,
                saving,
                recovering,
                failures_per_s,
                global_tier=global_tier,
                slower=slower,
                limit=limit,
            ),
        )


def _exactly(
    interval_s: Floats,
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    *,
    global_tier: GlobalTier | None,
    slower: Floats,
    limit: Limit | None,
) -> float | None:
    if limit is None or limit.at_signal:
        return None
    useful = goodput(interval_s, saving, recovering, failures_per_s, global_tier)
    left = saving if global_tier is None else global_tier.as_one(saving)
    every = 1 if global_tier is None else global_tier.every
    kept = limit.exactly(useful, every * interval_s, left, recovering, failures_per_s)
    return None if kept is None else 1 - float(np.asarray(kept / slower).flat[0])
