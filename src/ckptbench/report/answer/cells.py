"""The cells of an answer's table: how often to save, what that loses and saves, and what is fine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.quantities import (
    PERCENT,
    SECONDS,
    Quantity,
    Unit,
    plain,
    saved,
    span,
)

AT_LEAST, AT_MOST = "at least ", "at most "
"""Before numbers from a bound on the failure rate."""
NONE_HELPS = "none helps"
NARROW = 2.0
"""Where room is short, a loss is shown without its 95 % interval if that spans less than this factor."""
SMALL = 0.1
"""An interval in use is said in steps where it is less of the column's unit."""
SURE = 1.1
"""A 95 % interval that spans less than this factor is not shown: what is fine spans four times as much."""


def told(known: Quantity, unit: Unit) -> tuple[str, str]:
    """The number with its unit, and its 95 % interval: empty where that is unknown or narrow."""
    value, lo, hi = (plain(unit.scale * each) if math.isfinite(each) else "" for each in (known.value, known.lo, known.hi))  # fmt: skip
    is_sure = 0 < known.lo <= known.hi < SURE * known.lo
    ends = f"[{lo}, {hi}]" if lo and hi and not is_sure else ""
    return f"{value} {unit.name}".rstrip(), ends


def interval(choice: Choice, time: Unit, *, in_use: bool) -> tuple[str, str]:
    """How often to save, and the ends of that."""
    if in_use and choice.interval_s.value * time.scale < SMALL:
        return counted(round(choice.steps.value), "step"), ""
    if choice.helps_nothing and not in_use:
        return NONE_HELPS, ""
    value, ends = told(choice.interval_s, time)
    return (f"{AT_LEAST}{value}", "") if choice.is_bound and not in_use else (value, ends)


def loss(choice: Choice, *, with_narrow: bool = True) -> str:
    """What is lost, with its interval."""
    value, ends = told(choice.loses, PERCENT)
    lo, hi = choice.loses.lo, choice.loses.hi
    if not with_narrow and lo > 0 and hi < NARROW * lo:
        ends = ""
    before = AT_LEAST if choice.is_least else AT_MOST if choice.is_bound else ""
    return f"{before}{value} {ends}".rstrip()


def saving(choice: Choice) -> str:
    """`saves 182`, or `costs 182 more`: GPU-hours a day. Empty where there is nothing to compare with."""
    if choice.now is None or choice.saves_gpu_hours is None or choice.helps_nothing:
        return ""
    bound = saves_at(choice.now.steps.value, choice.steps.value) if choice.is_bound else ""
    saves = saved(choice.saves_gpu_hours)
    return f"costs {bound}{saves[1:]} more" if saves.startswith("-") else f"saves {bound}{saves}"


def fine(choice: Choice, time: Unit) -> str:
    """`21 - 76 min`; empty where it is unknown."""
    if choice.fine_steps is None or not choice.has_range:
        return ""
    step_s = choice.interval_s.value / choice.steps.value
    lo, hi = (steps * step_s for steps in choice.fine_steps)
    return span(lo, hi, time)


def saves_at(in_use: float, recommended: float) -> str:
    """What stands before what is saved, where failures may be rarer: a longer interval in use then loses less than it seems, a shorter one still
    saves too often."""
    return AT_MOST if in_use > recommended else AT_LEAST


def stalls(seconds: Sequence[tuple[str, float]]) -> str:
    """`saves stop for 0.31 s (native), 0.02 s (async)`: for how long training is blocked."""
    each = [(name, told(Quantity(stall_s), SECONDS)[0]) for name, stall_s in seconds]
    shown = [f"{value} ({name})" if len(each) > 1 else value for name, value in each]
    return f"saves stop for {', '.join(shown)}"
