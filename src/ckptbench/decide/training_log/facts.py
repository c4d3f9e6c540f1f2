"""What a log tells of the costs: a step, a save, the interval in use, the number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval, errors, of_differences
from ckptbench.decide.training_log.events import Log
from ckptbench.decide.training_log.run import Run, Window
from ckptbench.decide.training_log.slow import Slow, midmean, slow_steps

BLOCKS = 10
"""Into so many parts the steps of a log are cut. How far these differ is the interval of a step."""
ENOUGH = 3
"""With fewer step times than this, steps beside saves are used too."""
LONGER = 2
"""Steps that take so many times as long as others have something else in them, such as a save that no line names; with so much less, lines are torn."""
SURE = 100
"""A step time comes from lines about so many times as far apart as their times may be off."""
LEAST_S = 0.001
"""Taken for a save of which the log says 0.00 s."""
LONGEST_S = 1e6
"""No step or save takes longer: a line that says so is damaged."""
SURELY = 0.4
"""Steps beside saves count as slower if their interval begins above this part of what they lose."""
LEAST_PART = 0.01
"""An interval does not go below this part of its time."""
MOST_GPUS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None: the log does not tell it. Times are in seconds."""

    name: str
    """Of the form."""
    steps: int
    """Different ones."""
    again: int
    """That were made again after a failure."""
    saves: int
    step: Estimate | None
    stall: Estimate | None
    slowdown: Estimate | None
    """What the steps up to the next line lose beside a save that goes on: where times show that they lose something."""
    aside: str
    """What else is in the stall, or in the step: the beginning of a sentence. Empty: nothing."""
    durable_s: float | None
    """From the beginning of a save until the program says that it is finished, where that is after the stall."""
    background: bool
    """Whether saves go on, or may go on, beside the steps."""
    is_async: bool
    """Whether they do for sure."""
    interval: int | None
    """Steps from save to save."""
    gpus: int | None
    planned: int | None
    """Steps of the whole training."""
    setting: tuple[str, str] | None
    """The program and how it is told the interval."""
    restarts_s: tuple[float, ...]
    """From the last line before a failure until training goes on, in rising order. Empty: none is seen, or its lines have no dates."""
    guess: Slow | None
    """Slow steps that may be saves, in a log that names none."""
    multiple_of: int | None
    """A multiple of it suits the training: of the steps between evaluations, or of the interval in use, which does."""


def facts_of(log: Log) -> Facts:
    """Raises nothing: what makes no sense is left out."""
    run = Run(log.events)
    # Saves without a duration beside others that have one are of another kind, as those into the memory of a node.
    saves = run.timed or run.begun
    step = _step(run, log.resolution_s)
    if step is None and log.step_s:
        step = Estimate(log.step_s, UNKNOWN)
    stall, has_aside = _stall(run, step, log)
    background = any(event.background for event in log.events)
    interval = _interval(saves, run.unseen) or log.interval
    return Facts(
        name=log.form.name,
        steps=run.made - run.again,
        again=run.again,
        saves=len(saves),
        step=step,
        stall=stall,
        slowdown=_slowdown(run, step.value) if step and background else None,
        aside=log.form.aside if has_aside or log.step_s else "",
        durable_s=fmean(run.finished) if run.finished and background else None,
        background=background,
        is_async=log.is_async,
        interval=interval,
        setting=log.form.setting,
        restarts_s=tuple(_restarts_s(run, step.value)) if step else (),
        guess=slow_steps(run.windows, step.value, log.resolution_s) if step and not saves else None,
        multiple_of=log.multiple_of or interval,
        gpus=next((e.number for e in log.events if e.kind == "gpus" and 0 < e.number <= MOST_GPUS), None),
        planned=log.planned,
    )  # fmt: skip


def _step(run: Run, resolution_s: float) -> Estimate | None:
    """Of steps without a save beside or before them; where there are too few, of those beside saves of a known duration too."""
    known = [w for w in run.windows if not w.paused and w.begun <= len(w.stalls)]
    without = [window for window in known if not window.saves]
    quiet = [window for window in without if not window.follows_save]
    samples = [_samples(windows, resolution_s) for windows in (quiet, without, known)]
    return _estimate(next((each for each in samples if len(each) >= ENOUGH), samples[-1]), midmean)


def _samples(windows: Sequence[Window], resolution_s: float) -> list[float]:
    """Step times: as lines say them, or else the time that passed ÷ the steps, of several windows each where clocks are coarse."""
    if took_s := [window.took_s for window in windows if window.took_s]:
        return took_s
    timed = [
        (max(w.passed_s - sum(w.stalls), 0.0), w.steps)
        for w in windows
        if w.passed_s is not None and w.steps
    ]
    if not timed:
        return []
    usual_s = median(passed_s / steps for passed_s, steps in timed)
    off_s = 2 * resolution_s
    timed = [
        (passed_s, steps)
        for passed_s, steps in timed
        if usual_s * steps / LONGER - off_s <= passed_s <= LONGER * usual_s * steps + off_s
    ]
    all_s = sum(passed_s for passed_s, _ in timed)
    parts = np.array_split(np.array(timed), min(len(timed), int(all_s / (SURE * resolution_s)) + 1))
    return [float(passed_s / steps) for passed_s, steps in (part.sum(axis=0) for part in parts)]


def _estimate(samples: Sequence[float], of: Callable[[Sequence[float]], float], off_s: float = 0.0) -> Estimate | None:  # fmt: skip
    """With an interval that comes from blocks of neighbours, which share what slows them. None where it is not above 0.

    `off_s`: by how much all may be off alike.
    """
    each = [seconds for seconds in samples if abs(seconds) <= LONGEST_S]
    value = of(each) if each else 0.0
    if value <= 0:
        return None
    parts = np.array_split(np.array(each), min(len(each), BLOCKS))
    blocks = np.array([of(part.tolist()) for part in parts])
    own = UNKNOWN
    if len(blocks) > 1:
        own = errors([blocks])[0].around(value) if min(blocks) > 0 else of_differences(blocks).interval  # fmt: skip
    lo, hi = max(own.lo - off_s, LEAST_PART * value), min(own.hi + off_s, LONGEST_S)
    return Estimate(value, Interval(lo, hi))


def _stall(run: Run, step: Estimate | None, log: Log) -> tuple[Estimate | None, bool]:
    """As the log says it, or else what the steps with a save between them take longer; and whether an evaluation is in that."""
    if told := [max(stall_s, LEAST_S) for stall_s in run.stalls]:
        return _estimate(told, fmean), False
    if step is None:
        return None, False
    found = [(_longer_s(window, step.value, log), window) for window in run.windows if window.saves == 1]  # fmt: skip
    stalls = [longer_s for longer_s, _ in found if longer_s is not None]
    has_pause = any(window.paused and not window.pause_s for longer_s, window in found if longer_s is not None)  # fmt: skip
    return _estimate(stalls, fmean, log.resolution_s), has_pause


def _longer_s(window: Window, step_s: float, log: Log) -> float | None:
    """By how much than its steps alone, and than the pauses of which the log says how long they were."""
    if window.passed_s is not None:
        return window.passed_s - window.steps * step_s - window.pause_s
    if window.took_s is None or not (log.form.times_last or window.steps == 1):
        return None
    return window.took_s - step_s - window.pause_s


def _slowdown(run: Run, step_s: float) -> Estimate | None:
    """None where it may be by chance."""
    losses = [
        (w.passed_s - w.steps * step_s - sum(w.stalls)) / len(w.stalls)
        for w in run.windows
        if w.passed_s is not None and w.stalls and not w.paused
    ]
    lost = _estimate(losses, midmean)
    return lost if lost and lost.interval.lo > SURELY * lost.value else None


def _restarts_s(run: Run, step_s: float) -> list[float]:
    """Without the steps from the save to the first line."""
    if not run.windows:
        return []
    between = median(window.steps for window in run.windows)
    found = []
    for before, start in pairwise(run.starts):
        if start.down_s is not None and not run.is_new(start, before):
            since = start.first if start.resumed is None else start.first - start.resumed
            found.append(start.down_s - min(since, between) * step_s)
    return sorted(seconds for seconds in found if 0 < seconds <= LONGEST_S)


def _interval(saves: Sequence[int], unseen: Sequence[int]) -> int | None:
    """The usual gap: lines between which saves lie may be some steps apart. Steps that no log has may have had saves. None of fewer than two saves."""
    gaps = [
        after - before
        for before, after in pairwise(saves)
        if after >= before and not any(before <= step < after for step in unseen)
    ]
    if not any(gaps):
        return None
    usual = median(gap for gap in gaps if gap)
    return round(fmean(gap for gap in gaps if gap <= LONGER * usual))
