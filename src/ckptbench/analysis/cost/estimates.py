"""The two estimates of overhead, each with its bootstrap 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ckptbench.analysis.cost.statistics import (
    UNKNOWN,
    Floats,
    Interval,
    blocks,
    cluster_totals,
    percentile_interval,
    varies,
)
from ckptbench.analysis.cost.times import INSIDE_S, INSIDE_STEPS, STALL, WRITE, RunTimes
from ckptbench.matrix.interval import Interval as CheckpointInterval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio: 0.05 is 5 %."""

    value: float
    interval: Interval


NO_ESTIMATE = Estimate(math.nan, UNKNOWN)


def paired(
    pairs: Sequence[tuple[RunTimes, RunTimes]], epochs_per_block: int, random: np.random.Generator
) -> Estimate:
    """(T - T_baseline) / T_baseline, T being sums over the (run, baseline) pairs of one repeat each.

    Bootstrap: pairs are drawn, and within a pair blocks of epochs, the same epochs in run and baseline. A block
    is as long as it takes to hold the same number of checkpoints as any other, or a resample with more
    checkpoints than the run had would pass for noise. Epochs at the end that fill no block are kept as they are.
    """
    if not pairs:
        return NO_ESTIMATE
    clusters = []
    for run, baseline in pairs:
        times_s = np.column_stack([run.epoch_s, baseline.epoch_s])
        full = len(times_s) // epochs_per_block * epochs_per_block
        whole = times_s[:full].reshape(-1, epochs_per_block, 2).sum(axis=1)
        clusters.append([whole, times_s[full:].sum(axis=0, keepdims=True)])
    time_s, baseline_s = np.sum(
        [stratum.sum(axis=0) for pair in clusters for stratum in pair], axis=0
    )
    if not varies(clusters):
        return Estimate(time_s / baseline_s - 1, UNKNOWN)
    totals = sum(total.sum(axis=1) for total in cluster_totals(clusters, random))
    return Estimate(time_s / baseline_s - 1, percentile_interval(totals[:, 0] / totals[:, 1] - 1))


def epochs_per_block(interval: CheckpointInterval, steps_per_epoch: int) -> int:
    """The fewest epochs after which the checkpoints fall on the same steps of an epoch again."""
    steps = interval.steps(steps_per_epoch)
    return steps // math.gcd(steps, steps_per_epoch)


def in_run(runs: Sequence[RunTimes], random: np.random.Generator) -> Estimate:
    """(stalls + slowdown) / (mean period of the steps outside every save x number of steps), summed over runs.

    Slowdown is the time of the steps inside a background save beyond what as many outside would have taken.
    Bootstrap: runs are drawn, and within a run checkpoints on one hand, blocks of steps on the other.
    NaN where a run has no step outside every save, or no run has a checkpoint.
    """
    if not any(len(run.checkpoints) for run in runs) or not all(len(run.outside_s) for run in runs):
        return NO_ESTIMATE
    clusters = [[run.checkpoints, blocks(run.outside_s), np.array([[run.steps]])] for run in runs]
    totals = [
        np.array([[stratum.sum(axis=0) for stratum in strata]])
        for strata in zip(*clusters, strict=True)
    ]
    value = float(_in_run_ratio(*totals)[0])
    if not varies(clusters):
        return Estimate(value, UNKNOWN)
    return Estimate(value, percentile_interval(_in_run_ratio(*cluster_totals(clusters, random))))


def _in_run_ratio(checkpoints: Floats, outside: Floats, steps: Floats) -> Floats:
    """Totals by (resample, run, quantity) to the estimate by resample."""
    period_s = outside[..., 0] / outside[..., 1]
    slowdown_s = checkpoints[..., INSIDE_S] - checkpoints[..., INSIDE_STEPS] * period_s
    lost_s = checkpoints[..., STALL] + slowdown_s
    ratio: Floats = lost_s.sum(axis=1) / (period_s * steps[..., 0]).sum(axis=1)
    return ratio


def sync_share(runs: Sequence[RunTimes]) -> float:
    """The part of the in-run estimate that comes from stalls after the framework's own write returned."""
    sync_s = sum((run.checkpoints[:, STALL] - run.checkpoints[:, WRITE]).sum() for run in runs)
    return float(sync_s / sum(run.period_s * run.steps for run in runs))


def slowdown_s(run: RunTimes) -> float:
    """Extra time of the steps inside background saves; NaN where no step lies outside."""
    inside_s, inside_steps = run.checkpoints[:, [INSIDE_S, INSIDE_STEPS]].sum(axis=0)
    return float(inside_s - inside_steps * run.period_s)
