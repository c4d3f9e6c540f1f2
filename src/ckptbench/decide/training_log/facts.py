"""What a log tells of the costs: a step, a save, the interval in use, a restart, the number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev

import numpy as np

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval, errors, of_differences
from ckptbench.decide.training_log.events import Log
from ckptbench.decide.training_log.windows import Run, Save, Window

BLOCKS = 10
"""Into so many parts the steps of a log are cut. How far these differ is the interval of a step."""
ENOUGH = 3
"""With fewer step times than this, steps beside saves are used too."""
LONGER = 2
"""Steps that take so many times as long as others have something else in them, such as a save that no line names."""
FEW = 30
"""With fewer samples than this, each is a block of its own."""
SURE = 100
"""A step time comes from lines at least this many times as far apart as their times may be off."""
SURELY = 3
"""Steps count as slower if they are this many standard deviations longer."""
LEAST_S = 0.001
"""Taken for a save of which the log says 0.00 s."""
LONGEST_S = 1e6
"""No step, save or restart takes longer: a line that says so is damaged."""
LEAST_PART = 0.01
"""An interval does not go below this part of its time."""
MOST_GPUS = 10**6

Middle = Callable[[Sequence[float]], float]

KILLED = "from the last line of a killed job to the first step of the next"
STARTED = "from the first line to the first step, without waiting for GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None: the log does not tell it. Times are in seconds."""

    name: str
    """Of the form."""
    steps: int
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
    interval: int | None
    """Steps from save to save."""
    down: Estimate | None
    down_from: str
    gpus: int | None
    jumps: int
    """Times that its clock went back."""


def facts_of(log: Log) -> Facts:
    """Raises nothing: what makes no sense is left out."""
    run = Run(log.events)
    saves = [save for start in run.starts for save in start.saves]
    # Saves without a duration beside others that have one are of another kind, as those into the memory of a node.
    timed = [save for save in saves if save.stall_s is not None] or saves
    step = _step(run, log.resolution_s)
    if step is None and log.step_s:
        step = Estimate(log.step_s, UNKNOWN)
    stall, has_aside = _stall(run, saves, step, log)
    down, down_from = _down(run, log, step.value if step else 0.0)
    finished = [save.finished_s for save in saves if save.background and save.finished_s]
    gpus = next((e.number for e in log.events if e.kind == "gpus" and 0 < e.number <= MOST_GPUS), None)  # fmt: skip
    return Facts(
        name=log.form.name,
        steps=run.steps,
        saves=len(timed),
        step=step,
        stall=stall,
        slowdown=_slowdown(run, step, log.resolution_s) if step else None,
        aside=log.form.aside if has_aside or log.step_s else "",
        durable_s=fmean(finished) if finished else None,
        background=any(save.background for save in saves),
        interval=_interval(run, timed) or log.interval,
        down=down,
        down_from=down_from,
        gpus=gpus,
        jumps=run.jumps,
    )


def _step(run: Run, resolution_s: float) -> Estimate | None:
    """Of the steps with no save beside them, without the first of each start; where there are too few, of those after saves and beside saves of a known duration too."""
    known = [w for w in run.windows if not w.paused and all(s.stall_s is not None for s in w.saves)]
    without = [window for window in known if not (window.saves or window.is_first)]
    steady = [window for window in without if not window.follows_save]
    samples: list[float] = []
    for windows in (steady, without, known):
        if len(samples) < ENOUGH:
            samples = list(_samples(windows, resolution_s))
    told = any(window.last.seconds for window in known)
    off_s = 0.0 if told or not samples else fmean(samples) / SURE / math.sqrt(len(samples))
    return _estimate(samples, _midmean, off_s)


def _samples(windows: Sequence[Window], resolution_s: float) -> Iterator[float]:
    """Step times: each as its line says it, or else of so many steps that the resolution is a small part of them."""
    if told := [window.last.seconds for window in windows if window.last.seconds]:
        yield from told
        return
    timed = [
        (max(w.passed_s - sum(save.stall_s or 0.0 for save in w.saves), 0.0), w.steps)
        for w in windows
        if w.passed_s is not None
    ]
    each_s = median(window_s / steps for window_s, steps in timed) if timed else 0.0
    timed = [
        (window_s, steps)
        for window_s, steps in timed
        if window_s <= LONGER * each_s * steps + 2 * resolution_s
    ]
    least_s = SURE * resolution_s
    all_s, all_steps = sum(each for each, _ in timed), sum(steps for _, steps in timed)
    passed_s, steps = 0.0, 0
    for window_s, window_steps in timed:
        passed_s, steps = passed_s + window_s, steps + window_steps
        if steps * all_s >= min(least_s, all_s) * all_steps and passed_s > 0:
            yield passed_s / steps
            passed_s, steps = 0.0, 0


def _midmean(samples: Sequence[float]) -> float:
    """The mean of the middle half. A median would jump between whole seconds where times have no fractions."""
    ordered = sorted(samples)
    cut = (len(ordered) + 1) // 4
    return fmean(ordered[cut : len(ordered) - cut])


def _estimate(samples: Iterable[float], of: Middle, off_s: float = 0.0) -> Estimate | None:
    """With an interval that comes from blocks of neighbours, which share what slows them. None where it is not above 0.

    `off_s`: by how much all may be off alike.
    """
    each = [seconds for seconds in samples if abs(seconds) <= LONGEST_S]
    value = of(each) if each else 0.0
    if value <= 0:
        return None
    number = BLOCKS if len(each) >= FEW else len(each)
    blocks = np.array([of(block.tolist()) for block in np.array_split(np.array(each), number)])
    own = UNKNOWN
    if number > 1:
        own = errors([blocks])[0].around(value) if min(blocks) > 0 else of_differences(blocks).interval  # fmt: skip
    lo, hi = max(own.lo - off_s, LEAST_PART * value), min(own.hi + off_s, LONGEST_S)
    return Estimate(value, Interval(lo, hi))


def _stall(
    run: Run, saves: Sequence[Save], step: Estimate | None, log: Log
) -> tuple[Estimate | None, bool]:
    """As the log says it, or else what the steps with a save between them take longer; and whether an evaluation is in that."""
    if told := [max(save.stall_s, LEAST_S) for save in saves if save.stall_s is not None]:
        return _estimate(told, fmean), False
    if step is None:
        return None, False
    with_save = [w for w in run.windows if len(w.saves) == 1]
    since = [each for w in with_save if (each := _since_save(w, step.value)) is not None]
    # Else the line of a save is printed as it ends.
    if since and fmean(since) > _noise_s(run, step.value, log.resolution_s, len(since)):
        return _estimate(since, fmean, log.resolution_s), False
    paused = [w for w in run.windows if w.paused and not (w.saves or w.is_first)]
    pauses = [each for w in paused if (each := _longer(w, step.value, log)) is not None]
    pause = _estimate(pauses, fmean)
    stalls, has_pause, off_s = [], False, log.resolution_s
    for window in with_save:
        longer = _longer(window, step.value, log)
        if longer is None:
            continue
        if window.paused and not window.pause_s:
            has_pause = has_pause or pause is None
            longer -= pause.value if pause else 0.0
            off_s = log.resolution_s + (pause.interval.hi - pause.value if pause else 0.0)
        stalls.append(longer)
    return _estimate(stalls, fmean, off_s), has_pause


def _slowdown(run: Run, step: Estimate, resolution_s: float) -> Estimate | None:
    """None where it is within what other steps differ by."""
    losses = [
        (longer - sum(save.stall_s or 0.0 for save in window.saves)) / len(window.saves)
        for window, longer in _longer_ones(run, step.value)
        if window.saves and all(save.background and save.stall_s is not None for save in window.saves)
    ]  # fmt: skip
    lost = _estimate(losses, _midmean)
    return lost if lost and lost.value > _noise_s(run, step.value, resolution_s, len(losses)) else None  # fmt: skip


def _noise_s(run: Run, step_s: float, resolution_s: float, number: int) -> float:
    """How much longer than others so many windows are, on average, by chance alone."""
    others = [longer for window, longer in _longer_ones(run, step_s) if not window.saves]
    if len(others) < 2:
        return math.inf
    return SURELY * stdev(others) / math.sqrt(number) + resolution_s


def _longer_ones(run: Run, step_s: float) -> Iterator[tuple[Window, float]]:
    """Windows without a pause, and by how many seconds they are longer than their steps."""
    for window in run.windows:
        if window.passed_s is not None and not (window.paused or window.is_first):
            yield window, window.passed_s - window.steps * step_s


def _longer(window: Window, step_s: float, log: Log) -> float | None:
    """By how many seconds than its steps alone, and than the pauses of which the log says how long they were."""
    if window.passed_s is not None:
        return window.passed_s - window.steps * step_s - window.pause_s
    if window.steps > 1 and not log.form.times_last:
        return None
    return window.last.seconds and window.last.seconds - step_s - window.pause_s


def _since_save(window: Window, step_s: float) -> float | None:
    """The same from the line that says that the save begins, where that has a time: what was before it does not count."""
    (save,), last = window.saves, window.last
    if window.passed_s is None or save.at_s is None or last.at_s is None or last.step is None:
        return None
    steps, passed_s = last.step - save.step, last.at_s - save.at_s
    if not (0 <= steps <= window.steps and 0 <= passed_s <= window.passed_s):
        return None
    return passed_s - steps * step_s


def _interval(run: Run, saves: Sequence[Save]) -> int | None:
    counted = {id(save) for save in saves}
    starts = [[save for save in start.saves if id(save) in counted] for start in run.starts]
    gaps = [(after.step - before.step, after.is_told) for each in starts for before, after in pairwise(each)]  # fmt: skip
    if told := [gap for gap, is_told in gaps if is_told and gap > 0]:
        return int(median(told))
    if gaps:  # each may be off by the steps between two lines, their mean is not
        middle = median(gap for gap, _ in gaps)
        near = [gap for gap, _ in gaps if abs(gap - middle) <= run.stride]
        return round(fmean(near)) or None if near else None
    first = starts[0][0].step if starts and starts[0] else 0
    return first if first and run.starts[0].step <= run.stride else None


def _down(run: Run, log: Log, step_s: float) -> tuple[Estimate | None, str]:
    """Until training goes on after a failure."""
    downs = []
    for start in run.starts:
        if start.killed_s is not None and start.at_s is not None:
            # On average, a kill is half way between two lines.
            steps = run.before(start) + run.stride / 2
            downs.append(start.at_s - start.killed_s - steps * step_s)
    if killed := _estimate((each for each in downs if each > 0), _midmean, log.resolution_s):
        return killed, KILLED
    first = run.starts[0] if run.starts else None
    if log.began_s is not None and first is not None and first.at_s is not None:
        began = first.at_s - log.began_s - run.before(first) * step_s
        if began > 0:
            return Estimate(began, UNKNOWN), STARTED
    return None, ""
