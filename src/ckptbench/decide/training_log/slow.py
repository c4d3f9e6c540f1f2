"""Slow steps at equal distances, in a log that names no save: they may be saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from ckptbench.decide.training_log.run import Window

FEWEST = 3
"""So many slow steps show a distance."""
CLEAR = 4
"""A step is slow if it takes longer by so many times what times may be off, and by more than another step."""
MOST_OF = 0.8
"""At so many of the multiples of a distance a step is slow, and so many of the slow steps lie there."""
WIDEST = 1000
"""Steps between two lines: with more, no distance is tried."""


@dataclass(frozen=True, slots=True)
class Slow:
    """After each `every` steps one step takes so much longer."""

    every: int
    longer_s: float


def slow_steps(windows: Sequence[Window], step_s: float, off_s: float) -> Slow | None:
    """None where no distance fits. Steps beside an evaluation are left out."""
    known = [window for window in windows if not window.paused and _longer_s(window, step_s) is not None]  # fmt: skip
    slow = [w for w in known if (_longer_s(w, step_s) or 0.0) > max(step_s, CLEAR * off_s)]
    if len(slow) < FEWEST or max(window.steps for window in slow) > WIDEST:
        return None
    apart = [after.before - before.before for before, after in pairwise(slow)]
    usual, width = median(apart), max(window.steps for window in slow)
    tried = range(max(round(usual) - width + 1, 2), round(usual) + width)
    # The rounder the likelier: of lines several steps apart more than one distance fits.
    ordered = sorted(tried, key=lambda each: (len(str(each).rstrip("0")), abs(each - usual)))
    for every in ordered:
        due = [window for window in known if _holds(window, every)]
        found = [window for window in slow if _holds(window, every)]
        if len(found) >= max(FEWEST, MOST_OF * len(due), MOST_OF * len(slow)):
            return Slow(every, midmean([_longer_s(window, step_s) or 0.0 for window in found]))
    return None


def midmean(samples: Sequence[float]) -> float:
    """The mean of the middle half. A median would jump between whole seconds where times have no fractions."""
    ordered = sorted(samples)
    cut = (len(ordered) + 1) // 4
    return fmean(ordered[cut : len(ordered) - cut])


def _holds(window: Window, every: int) -> bool:
    """Whether a multiple lies between its lines, where a save would be."""
    last = window.before + window.steps - 1
    return last >= every and last // every > (window.before - 1) // every


def _longer_s(window: Window, step_s: float) -> float | None:
    if window.passed_s is not None:
        return window.passed_s - window.steps * step_s
    return window.took_s - step_s if window.took_s is not None and window.steps == 1 else None
