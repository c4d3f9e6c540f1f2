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
    by_phase: tuple[float, float, float] | None = None
    """All that is lost, where few saves fit into a job: if all takes exactly as long as it is said to, at least and at most, by where the limit falls between two."""

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
            by_phase=_by_phase(
                interval_s,
                saving,
                recovering,
                failures_per_s,
                global_tier=global_tier,
                slower=slower,
                limit=limit,
            ),
        )


def _by_phase(
    interval_s: Floats,
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    *,
    global_tier: GlobalTier | None,
    slower: Floats,
    limit: Limit | None,
) -> tuple[float, float, float] | None:
    if limit is None or limit.at_signal:
        return None
    useful = goodput(interval_s, saving, recovering, failures_per_s, global_tier)
    left = saving if global_tier is None else global_tier.as_one(saving)
    every = 1 if global_tier is None else global_tier.every
    kept = limit.by_phase(useful, every * interval_s, left, recovering, failures_per_s)
    if kept is None:
        return None
    exact, least, most = (1 - float(np.asarray(each / slower).flat[0]) for each in kept)
    return exact, least, most
