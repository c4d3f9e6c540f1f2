"""Axes whose ticks are numbers that a reader would choose."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, log10

import numpy as np
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

ROOM = 1.12
"""The factor between the outermost value and the end of a logarithmic axis."""
MOST_LABELS = 6


def logarithmic(axis: Axis, values: Iterable[float]) -> None:
    """A logarithmic axis around the positive values, with plain ticks at 1, 2, 5 times powers of ten.

    Over more than three powers of ten, ticks at these alone.
    """
    known = [value for value in values if value > 0]
    if not known:
        return
    low, high = min(known), max(known)
    exponents = range(floor(log10(low)), floor(log10(high)) + 2)
    steps = (1,) if high / low > 1000 else (1, 2, 5)
    candidates = [step * 10.0**exponent for exponent in exponents for step in steps]
    ticks = [t for t in candidates if _before(candidates, low) <= t <= _after(candidates, high)]
    _set_scale(axis, 10)
    _set_ticks(axis, ticks, ticks)
    _set_limits(axis, min(low, ticks[0]) / ROOM, max(high, ticks[-1]) * ROOM)


def _before(candidates: list[float], value: float) -> float:
    return max((c for c in candidates if c <= value), default=candidates[0])


def _after(candidates: list[float], value: float) -> float:
    return min((c for c in candidates if c >= value), default=candidates[-1])


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
