"""Axes whose ticks are numbers that a reader would choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf, log10

import numpy as np
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

ROOM = 1.12
"""The factor between the outermost value and the end of a logarithmic axis."""
MOST_LABELS = 6
STEPS: Mapping[float, tuple[int, ...]] = {50: (1, 2, 5), 1000: (1, 3), inf: (1,)}
"""Ticks of a logarithmic axis in each power of ten, by the largest ratio of values that they suit."""
LINEAR_PERCENT = 10
WIDE_PERCENT = 100
"""On a linear axis that goes further than this, a few percent cannot be told apart."""


def logarithmic(axis: Axis, values: Iterable[float]) -> None:
    """A logarithmic axis around the positive values, with plain ticks at a few places a power of ten."""
    known = [value for value in values if value > 0]
    if not known:
        return
    low, high = min(known), max(known)
    exponents = range(floor(log10(low)), floor(log10(high)) + 2)
    steps = next(steps for widest, steps in STEPS.items() if high / low <= widest)
    candidates = [step * 10.0**exponent for exponent in exponents for step in steps]
    ticks = [t for t in candidates if _before(candidates, low) <= t <= _after(candidates, high)]
    _set_scale(axis, 10)
    _set_ticks(axis, ticks, ticks)
    _set_limits(axis, min(low, ticks[0]) / ROOM, max(high, ticks[-1]) * ROOM)


def _before(candidates: list[float], value: float) -> float:
    return max((c for c in candidates if c <= value), default=candidates[0])


def _after(candidates: list[float], value: float) -> float:
    return min((c for c in candidates if c >= value), default=candidates[-1])


def percent(axis: Axis, values: Sequence[float]) -> None:
    """An axis that holds zero and all values; logarithmic beyond LINEAR_PERCENT where they are wide apart."""
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    if is_wide(values):
        axis.axes.set_xscale("symlog", linthresh=LINEAR_PERCENT, linscale=1)
        ends = (1.3 * low - 1, 1.3 * high)
        marks = (0, 5, 10, 20, 50, *(10.0**power for power in range(2, 7)))
        ticks = [sign * mark for mark in marks for sign in (-1, 1)]
        inside = sorted({tick for tick in ticks if ends[0] <= tick <= ends[1]})
        _set_ticks(axis, inside, inside)
    else:
        room = 0.05 * (high - low or 1)
        ends = (low - room, high + room)
    _set_limits(axis, *ends)


def is_wide(values: Iterable[float]) -> bool:
    """Whether an axis with these values, in percent, is better not linear."""
    return max(map(abs, values), default=0) > WIDE_PERCENT


def measured_ranks(axis: Axis, ranks: Iterable[int]) -> None:
    """Powers of two, ticks at measured numbers of ranks only; of many, every second has its number."""
    ticks = sorted({float(number) for number in ranks})
    every = 1 if len(ticks) <= MOST_LABELS else 2
    _set_scale(axis, 2)
    _set_ticks(axis, ticks, ticks[::-1][::every])
    _set_limits(axis, ticks[0] / 1.2, ticks[-1] * 1.2)


def _set_scale(axis: Axis, base: int) -> None:
    setter = axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale
    setter("log", base=base)


def _set_limits(axis: Axis, low: float, high: float) -> None:
    setter = axis.axes.set_xlim if isinstance(axis, XAxis) else axis.axes.set_ylim
    setter(low, high)


def _set_ticks(axis: Axis, ticks: list[float], labelled: list[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: plain(tick) if tick in labelled else ""))


def plain(number: float) -> str:
    """`20,000`, `0.05`: no powers, no trailing zeros."""
    return (
        np.format_float_positional(number, trim="-", precision=6)
        if number < 1000
        else f"{number:,.0f}"
    )
