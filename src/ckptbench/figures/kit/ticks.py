"""Axes whose ticks are numbers that a reader would choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import floor, inf, isnan, log10

import numpy as np
from matplotlib import rcParams
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, Formatter, MaxNLocator, NullLocator

from ckptbench.figures.kit.captions import POINTS_PER_INCH, text_width_in
from ckptbench.figures.kit.style import FAINT

ROOM = 1.12
"""The factor between the outermost value and the end of a logarithmic axis."""
MOST_LABELS = 6
STEPS: Mapping[float, tuple[int, ...]] = {50: (1, 2, 5), 1000: (1, 3), inf: (1,)}
"""Ticks of a logarithmic axis in each power of ten, by the largest ratio of values that they suit."""
FEW = 4
"""How many steps a linear axis with few ticks may have."""
LABEL_GAP_IN = 0.03
"""The least room between the labels of two ticks."""
LINEAR_PERCENT = 10
WIDE_PERCENT = 100
"""On a linear axis that goes further than this, a few percent cannot be told apart."""

FARTHEST = 2
"""How many times as far as the values, or the whole, intervals may make an axis reach."""


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


def linear(axis: Axis, values: Sequence[float]) -> None:
    """A linear axis that holds zero and all values, with few ticks."""
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    room = 0.05 * (high - low or 1)
    _set_limits(axis, low - room, high + room)
    marks = MaxNLocator(FEW, steps=[1, 2, 5, 10]).tick_values(low, high)
    inside = [float(mark) for mark in marks if low - room <= mark <= high + room]
    _set_ticks(axis, inside, inside)


def reach(values: Iterable[float], ends: Iterable[float]) -> float:
    """How far an axis with parts of a whole must reach, in percent: to 100, or to values above it and the upper `ends` of their
    intervals; NaN is ignored. Where an end is so far off that values would be hard to tell apart, the axis ends before."""
    least = max([100.0, *(value for value in values if not isnan(value))])
    return min(FARTHEST * least, max([least, *(end for end in ends if not isnan(end))]))


def of_whole(axis: Axis, farthest: float) -> None:
    """A linear axis from zero to `farthest`, in percent of a whole. Where it goes beyond the whole, a line is at 100."""
    marks = MaxNLocator(FEW, steps=[1, 2, 5, 10]).tick_values(0.0, farthest)
    inside = [float(mark) for mark in marks if mark <= farthest]
    _set_limits(axis, 0.0, 1.05 * farthest)
    _set_ticks(axis, inside, inside)
    if farthest > 100:
        draw = axis.axes.axvline if isinstance(axis, XAxis) else axis.axes.axhline
        draw(100, color=FAINT, gid="whole", zorder=0.9)  # above the grid


def upper_part(axis: Axis, lowest: float) -> None:
    """A linear axis up to 100 %, from the multiple of ten below `lowest`."""
    low = max(0.0, 10.0 * floor(min(lowest, 95.0) / 10))
    marks = MaxNLocator(FEW, steps=[1, 2, 5, 10]).tick_values(low, 100.0)
    inside = [float(mark) for mark in marks if low <= mark <= 100.0]
    _set_limits(axis, low, 100.0 + 0.05 * (100.0 - low))
    _set_ticks(axis, inside, inside)


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
    axis.set_major_formatter(_Legible(labelled))


class _Legible(Formatter):
    """Labels of as many of the ticks as fit side by side on the axis, or one below the other.

    The layout decides how long the axis is, so this is decided whenever the figure is drawn.
    """

    def __init__(self, labelled: Sequence[float]) -> None:
        self._labelled = labelled

    def __call__(self, x: float, pos: int | None = None) -> str:
        return plain(x) if x in self._labelled else ""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        candidates = [value for value in values if value in self._labelled]
        shown = next((some for some in _fewer(candidates) if self._fit(some)), [])
        return [plain(value) if value in shown else "" for value in values]

    def _fit(self, values: list[float]) -> bool:
        axis = self.axis
        assert isinstance(axis, Axis)
        box = axis.axes.get_window_extent()
        if isinstance(axis, XAxis):
            length, sizes_in = box.width, [text_width_in(plain(value)) for value in values]
        else:
            length, sizes_in = box.height, [rcParams["font.size"] / POINTS_PER_INCH] * len(values)
        length_in = length / axis.axes.figure.dpi
        low, high, *scaled = axis.get_transform().transform([*axis.get_view_interval(), *values])
        middles_in = [length_in * (place - low) / (high - low) for place in scaled]
        sides = sorted(
            (middle - size / 2, middle + size / 2)
            for middle, size in zip(middles_in, sizes_in, strict=True)
        )
        return all(end + LABEL_GAP_IN <= begin for (_, end), (begin, _) in pairwise(sides))


def _fewer(ticks: list[float]) -> Iterator[list[float]]:
    """All ticks, then fewer and fewer: zero and the powers of ten where there are several, then every second tick, every third...

    Zero stays, if it is one of them.
    """
    yield ticks
    decades = [tick for tick in ticks if not tick or round(log10(abs(tick)), 9).is_integer()]
    if len(decades) > 1:
        yield decades
    zero = ticks.index(0) if 0 in ticks else 0
    for every in range(2, len(ticks) + 1):
        yield ticks[zero % every :: every]


def plain(number: float) -> str:
    """`20,000`, `0.05`: no powers, no trailing zeros."""
    return (
        np.format_float_positional(number, trim="-", precision=6)
        if abs(number) < 1000
        else f"{number:,.0f}"
    )
