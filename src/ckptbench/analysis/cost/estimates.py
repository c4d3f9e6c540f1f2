"""The two estimates of overhead, over all repeats and of each alone."""

from __future__ import annotations

from collections.abc import Sequence

from ckptbench.analysis.cost.statistics import Repeated
from ckptbench.analysis.cost.times import INSIDE_S, INSIDE_STEPS, STALL, WRITE, RunTimes


def paired(pairs: Sequence[tuple[RunTimes, RunTimes]]) -> Repeated:
    """T / T_baseline, T being sums over the (run, baseline) pairs of one repeat each; NaN without pairs.

    The overhead is this minus 1. Only the ratio itself is always above zero, and so has a logarithm.
    """
    return Repeated.ratio(
        [run.time_s for run, _ in pairs], [baseline.time_s for _, baseline in pairs]
    )


def in_run(runs: Sequence[RunTimes]) -> Repeated:
    """(stalls + slowdown) / (mean period of the steps outside every save x number of steps), summed over runs.

    Slowdown is the time of the steps inside a background save beyond what as many outside would have taken.
    NaN where a run has no step outside every save, or no run has a checkpoint.
    """
    if not any(len(run.checkpoints) for run in runs) or not all(len(run.outside_s) for run in runs):
        return Repeated.ratio([], [])
    return Repeated.ratio(
        [run.checkpoints[:, STALL].sum() + slowdown_s(run) for run in runs],
        [run.period_s * run.steps for run in runs],
    )


def in_run_steady(runs: Sequence[RunTimes]) -> Repeated:
    """As `in_run`, had every checkpoint of a run cost as much as its checkpoints in the steady state did on average.

    NaN where a run has no such checkpoint, or no step outside every save.
    """
    steady = [run.steady for run in runs]
    if not all(len(own.checkpoints) and len(own.outside_s) for own in steady):
        return Repeated.ratio([], [])
    return Repeated.ratio(
        [
            len(run.checkpoints)
            * (own.checkpoints[:, STALL].sum() + slowdown_s(own))
            / len(own.checkpoints)
            for run, own in zip(runs, steady, strict=True)
        ],
        [run.period_s * run.steps for run in runs],
    )


def sync_share(runs: Sequence[RunTimes]) -> float:
    """The part of the in-run estimate that comes from stalls after the framework's own write returned."""
    sync_s = sum((run.checkpoints[:, STALL] - run.checkpoints[:, WRITE]).sum() for run in runs)
    return float(sync_s / sum(run.period_s * run.steps for run in runs))


def slowdown_s(run: RunTimes) -> float:
    """Extra time of the steps inside background saves; NaN where no step lies outside."""
    inside_s, inside_steps = run.checkpoints[:, [INSIDE_S, INSIDE_STEPS]].sum(axis=0)
    return float(inside_s - inside_steps * run.period_s)
