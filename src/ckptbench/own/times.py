"""What a run of an own training spent its time on, as the estimates of overhead need it."""

from __future__ import annotations

from statistics import median

import numpy as np

from ckptbench.analysis.cost.statistics import Floats
from ckptbench.analysis.cost.times import RunTimes
from ckptbench.own.seen import WARMUP_STEPS, SeenRun
from ckptbench_probe.measures import FIRST_GAPS, NS, Checkpoint, quiet_gaps_s
from ckptbench_probe.reading import ProcessSeen


def is_warmup(checkpoint: Checkpoint) -> bool:
    return checkpoint.updates < WARMUP_STEPS


def is_first(place: int) -> bool:
    """Whether the checkpoint at this place, from 1, is the first of its run: it starts helpers and allocates what later ones find there."""
    return place == 1


def times_of(run: SeenRun, baseline: SeenRun | None = None) -> RunTimes:
    """Of a run that is timed. Its slowdown is the sum of what the probe calls hidden, where that is known, without what the same gaps of its baseline
    are longer than usual, as by an evaluation before each save. A baseline that saved or made other steps tells nothing of that."""
    outside_s = np.array(quiet_gaps_s(run.ranks[0]))
    period_s = float(outside_s.mean())
    longer_s = _longer_s(run, baseline)
    rows = [
        _costs(one, period_s, longer_s, steady=not is_first(place))
        for place, one in enumerate(run.checkpoints, start=1)
        if not is_warmup(one)
    ]
    return RunTimes(
        epoch_s=np.array([max(map(_length_s, run.ranks))]),
        outside_s=outside_s,
        checkpoints=np.array(rows).reshape(-1, 4),
    )


def _longer_s(run: SeenRun, baseline: SeenRun | None) -> Floats:
    """By how much each gap of the baseline is longer than its median, in seconds of the run: both medians are made the same. Else 0 for each."""
    if (
        baseline is None
        or baseline is run
        or baseline.checkpoints
        or baseline.measures.updates != run.measures.updates
    ):
        return np.zeros(run.measures.updates)
    gaps_s = np.diff(baseline.ranks[0].updates_ns) / NS
    usual_s = median(quiet_gaps_s(baseline.ranks[0]))
    return (gaps_s / usual_s - 1) * median(quiet_gaps_s(run.ranks[0]))


def known_hidden(run: SeenRun, times: RunTimes) -> RunTimes:
    """The same with those checkpoints alone whose hidden slowdown is known: without the last one, if no step followed it."""
    counted = [one for one in run.checkpoints if not is_warmup(one)]
    known = np.array([one.hidden_s is not None for one in counted], bool)
    return RunTimes(times.epoch_s, times.outside_s, times.checkpoints[known])


def _costs(
    one: Checkpoint, period_s: float, longer_s: Floats, *, steady: bool
) -> tuple[float, ...]:
    """A row of `RunTimes.checkpoints`. A gap that is longer in the baseline, too, counts as
    more steps."""
    if one.hidden_s is None:
        return (one.stall_s, 0.0, 0.0, float(steady))
    own_s = float(longer_s[one.updates - 1 : one.updates - 1 + one.gaps].sum())
    usual_s = one.gaps * period_s + own_s
    return (
        one.stall_s,
        one.hidden_s - own_s + usual_s,
        usual_s / period_s,
        float(steady),
    )


def _length_s(process: ProcessSeen) -> float:
    """From the end of the warm-up to the last update, and the saves after it that the training waited for."""
    last_ns = process.updates_ns[-1]
    after = [one for one in process.saves if one.stepping and one.start_ns >= last_ns]
    waited_ns = sum(one.end_ns - one.start_ns for one in after if one.end_ns is not None)
    first_ns = process.updates_ns[min(FIRST_GAPS, len(process.updates_ns) - 1)]
    return (last_ns - first_ns + waited_ns) / NS
