"""The cells of an answer's table: how often to save, what that loses and saves, and what is fine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.quantities import (
    PERCENT,
    PLAIN,
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
"""Where room is short, a loss or a saving is shown without its 95 % interval if that spans less than this factor."""
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
    if not with_narrow and lo > 0 and hi < NARROW * lo and not choice.depends_on_phase:
        ends = ""
    before = AT_LEAST if choice.is_least else AT_MOST if choice.is_bound else ""
    return f"{before}{value} {ends}".rstrip()


def saving(choice: Choice, *, with_narrow: bool = True, with_ends: bool = True) -> str:
    """`saves 182 [90, 400]`, or `costs 182 more`: GPU-hours a day. Empty where there is nothing to compare with."""
    if choice.now is None or (known := _more_or_less(choice)) is None:
        return ""
    bound = saves_at(choice.now.steps.value, choice.steps.value) if choice.is_bound else ""
    ends = ends_of_saving(choice, with_narrow=with_narrow) if with_ends else ""
    saves = " ".join(filter(None, [f"{bound}{saved(known.value)}", ends]))
    return f"costs {saves} more" if known is not choice.saves else f"saves {saves}"


def ends_of_saving(choice: Choice, *, with_narrow: bool = True) -> str:
    """`[90, 400]`, of what is saved, or of what more is lost."""
    if choice.now is None or (known := _more_or_less(choice)) is None:
        return ""
    depends = choice.depends_on_phase or choice.now.depends_on_phase
    is_narrow = known.lo > 0 and known.hi < NARROW * known.lo and not depends
    return "" if is_narrow and not with_narrow else told(known, PLAIN)[1]


def _more_or_less(choice: Choice) -> Quantity | None:
    """What is saved, or if it is below zero what more is lost. None where there is nothing to compare with."""
    if choice.saves is None or choice.helps_nothing:
        return None
    return choice.saves.opposite if saved(choice.saves.value).startswith("-") else choice.saves


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


SLOWS = 0.2
"""What steps lose beside a save is said where it is more than this part of the stall."""


def stalls(seconds: Sequence[tuple[str, float, float]]) -> str:
    """`saves stop for 0.31 s (native), 0.02 s and slow steps by 0.1 s (async)`: for how long training is blocked, and what its steps lose beside the save."""

    def said(known_s: float) -> str:
        return told(Quantity(known_s), SECONDS)[0]

    each = [
        (name, said(stall_s) + (f" and slow steps by {said(slowdown_s)}" if slowdown_s > SLOWS * stall_s else ""))
        for name, stall_s, slowdown_s in seconds
    ]  # fmt: skip
    shown = [f"{value} ({name})" if len(each) > 1 else value for name, value in each]
    return f"saves stop for {', '.join(shown)}"
