"""What a run of an own training spent its time on, as the estimates of overhead need it."""

from __future__ import annotations

import math

import numpy as np

from ckptbench.analysis.cost.times import RunTimes
from ckptbench.own.seen import WARMUP_STEPS, SeenRun
from ckptbench_probe.measures import FIRST_GAPS, NS, Checkpoint, quiet_gaps_s
from ckptbench_probe.reading import ProcessSeen


def is_warmup(checkpoint: Checkpoint) -> bool:
    return checkpoint.updates < WARMUP_STEPS


def is_first(place: int) -> bool:
    """Whether the checkpoint at this place, from 1, is the first of its run: it starts helpers and allocates what later ones find there."""
    return place == 1


def times_of(run: SeenRun) -> RunTimes:
    """Of a run that is timed. Its slowdown is the sum of what the probe calls hidden, where that is known."""
    outside_s = np.array(quiet_gaps_s(run.ranks[0]))
    period_s = float(outside_s.mean())
    rows = [
        _costs(one, period_s, steady=not is_first(place))
        for place, one in enumerate(run.checkpoints, start=1)
        if not is_warmup(one)
    ]
    return RunTimes(
        epoch_s=np.array([max(map(_length_s, run.ranks))]),
        outside_s=outside_s,
        checkpoints=np.array(rows).reshape(-1, 5),
    )


def known_hidden(run: SeenRun, times: RunTimes) -> RunTimes:
    """The same with those checkpoints alone whose hidden slowdown is known: without the last one, if no step followed it."""
    counted = [one for one in run.checkpoints if not is_warmup(one)]
    known = np.array([one.hidden_s is not None for one in counted], bool)
    return RunTimes(times.epoch_s, times.outside_s, times.checkpoints[known])


def _costs(one: Checkpoint, period_s: float, *, steady: bool) -> tuple[float, ...]:
    """A row of `RunTimes.checkpoints`. What part of the stall is the engine's own write is not known."""
    if one.hidden_s is None:
        return (one.stall_s, math.nan, 0.0, 0.0, float(steady))
    return (one.stall_s, math.nan, one.hidden_s + one.gaps * period_s, one.gaps, float(steady))


def _length_s(process: ProcessSeen) -> float:
    """From the end of the warm-up to the last update, or to the end of a save after it that the training waited for."""
    ends = [save.end_ns for save in process.saves if save.stepping and save.end_ns is not None]
    last_ns = max([process.updates_ns[-1], *ends])
    return (last_ns - process.updates_ns[min(FIRST_GAPS, len(process.updates_ns) - 1)]) / NS
