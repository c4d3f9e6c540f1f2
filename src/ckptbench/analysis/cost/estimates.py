"""The two estimates of overhead, over all repeats and of each alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval, PerRepeat
from ckptbench.analysis.cost.times import BLOCKED, INSIDE_S, INSIDE_STEPS, RunTimes

PAIRED, IN_RUN = "paired", "in_run"
"""`ckptbench_probe.comparing.estimates` makes both of the runs of a user's training."""


def paired_ratio(pairs: Sequence[tuple[RunTimes, RunTimes]]) -> PerRepeat:
    """Total time of the runs ÷ total time of their baselines; one pair a repeat. NaN without pairs.

    The overhead is this minus 1. Only the ratio itself is always above zero, and so has a logarithm.
    """
    return PerRepeat.ratio(
        [run.time_s for run, _ in pairs], [baseline.time_s for _, baseline in pairs]
    )


def in_run(runs: Sequence[RunTimes]) -> PerRepeat:
    """(stalls + waits of the next save + slowdown) / (mean period of the steps outside every save x number of steps), summed over runs.

    Slowdown is the time of the steps inside a background save beyond what as many outside would have taken.
    NaN where a run has no step outside every save, or no run has a checkpoint.
    """
    if not any(len(run.checkpoints) for run in runs) or not all(len(run.outside_s) for run in runs):
        return PerRepeat.ratio([], [])
    return PerRepeat.ratio(
        [run.checkpoints[:, BLOCKED].sum() + slowdown_s(run) for run in runs],
        [run.period_s * run.steps for run in runs],
    )


def in_run_steady(runs: Sequence[RunTimes]) -> PerRepeat:
    """`in_run`, with each checkpoint's cost replaced by the run's mean in the steady state.

    NaN where a run has no such checkpoint, or no step outside every save.
    """
    steady = [run.steady for run in runs]
    if not all(len(own.checkpoints) and len(own.outside_s) for own in steady):
        return PerRepeat.ratio([], [])
    return PerRepeat.ratio(
        [
            len(run.checkpoints)
            * (own.checkpoints[:, BLOCKED].sum() + slowdown_s(own))
            / len(own.checkpoints)
            for run, own in zip(runs, steady, strict=True)
        ],
        [run.period_s * run.steps for run in runs],
    )


def estimate_to_quote(against_baseline: Estimate, inside: Estimate) -> str:
    """The name of the estimate to quote.

    Quote `in_run`: noise between two runs does not reach it. Quote `paired` where it alone has an interval, or where the two intervals do
    not overlap: it includes what checkpoints cost later steps. Sign and width do not decide: choosing by them would make intervals miss
    more often.
    """
    paired_tells, inside_tells = (
        not math.isnan(own.interval.hi) for own in (against_baseline, inside)
    )
    if paired_tells and inside_tells:
        return IN_RUN if against_baseline.interval.overlaps(inside.interval) else PAIRED
    known = not math.isnan(against_baseline.value)
    return PAIRED if paired_tells or (known and math.isnan(inside.value)) else IN_RUN


def slowdown_s(run: RunTimes) -> float:
    """Extra time of the steps inside background saves; NaN where no step lies outside."""
    inside_s, inside_steps = run.checkpoints[:, [INSIDE_S, INSIDE_STEPS]].sum(axis=0)
    return float(inside_s - inside_steps * run.period_s)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The extra time of the steps inside background saves, for one checkpoint.

    It is less than the noise of one repeat where a strategy disturbs little, and then below zero in some repeats. So it is
    estimated as the paired overhead is: by a ratio, which is always above zero.
    """

    ratio: PerRepeat
    """Time of these steps ÷ what as many outside every save would have taken. Without any such step it has no repeats."""
    usual_s: float
    """What as many would have taken, for one checkpoint. NaN if a run has no step outside every save."""
    runs: int

    @classmethod
    def of(cls, runs: Sequence[RunTimes]) -> Slowdown:
        sums = [run.checkpoints[:, [INSIDE_S, INSIDE_STEPS]].sum(axis=0) for run in runs]
        usual_s = np.array(
            [steps * run.period_s for run, (_, steps) in zip(runs, sums, strict=True)]
        )
        mean_s = float(usual_s.sum()) / sum(len(run.checkpoints) for run in runs)
        if not usual_s.any():
            return cls(PerRepeat.ratio([], []), mean_s, len(runs))
        inside_s = np.array([inside_s for inside_s, _ in sums])
        own = np.divide(inside_s, usual_s, out=np.ones(len(runs)), where=usual_s != 0)
        return cls(PerRepeat(float(inside_s.sum() / usual_s.sum()), own), mean_s, len(runs))

    def estimate(self, ratio: Estimate) -> Estimate:
        """The slowdown in seconds, from the estimate of its ratio."""
        if self.usual_s == 0:
            return Estimate(0.0, Interval(0.0, 0.0) if self.runs > 1 else UNKNOWN)
        lo, hi = (self.usual_s * (end - 1) for end in ratio.interval)
        return Estimate(self.usual_s * (ratio.value - 1), Interval(lo, hi))
