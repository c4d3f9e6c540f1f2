"""Axes for people: logarithmic ones with plain numbers, percents, and numbers of ranks. Linear axes are matplotlib's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator
from numpy.typing import NDArray

from ckptbench.report.figures.kit.style import FAINT

Floats = NDArray[np.float64]

ROOM = 0.05
"""Part of a logarithmic axis that is left free at each end."""
NARROWEST = 6
"""The least factor between both ends of a logarithmic axis: it has two ticks at least."""
LABEL = 1.3
"""Least distance of two ticks, in what matplotlib takes for the size of a label."""
LETTER, BETWEEN = 0.2, 0.3
"""The width of a letter, and the least distance between two labels, in the same unit."""
UNITS = {"ms": 1 / 60_000, "s": 1 / 60, "min": 1.0, "h": 60.0, "d": 1440.0}
"""Units of time in minutes, the smallest first."""
ROUNDING = 1e-9
"""A time that lacks such a part of a unit is one."""
LINEAR_PERCENT = 10
"""A wide axis of percents is linear up to here."""
BENT = f"logarithmic beyond {LINEAR_PERCENT} %"
BENT_IN = 0.26
"""Room for that line, and for what the layout leaves around it: else a figure of one row has none for its panel."""
WIDE_PERCENT = 100
"""On a linear axis that goes further than this, a few percent cannot be told apart."""
FARTHEST = 2
"""How many times as far as the values, or the whole, intervals may make an axis reach."""
MOST_POWERS = 6
"""So many powers of ten have a tick on a wide axis of percents."""
MOST_RANKS = 6
"""So many numbers of ranks have a tick."""


def plain(number: float, _place: object = None) -> str:
    """`20,000`, `0.05`: no powers, no trailing zeros."""
    if abs(number) < 1000:
        return str(np.format_float_positional(number, trim="-", precision=9))
    return f"{number:,.0f}"


def duration(minutes: float, _place: object = None) -> str:
    """`30 s`, `10 min`, `6 h`, `2 d`: in the largest unit of which it is at least one."""
    reached = [unit for unit, size in UNITS.items() if size <= minutes * (1 + ROUNDING)]
    unit = reached[-1] if reached else next(iter(UNITS))
    return f"{plain(round(minutes / UNITS[unit], 6))} {unit}"


class _Roomy(Locator, ABC):
    """Ticks of a logarithmic axis: the first of several choices whose labels have room, and of which two are seen."""

    def __call__(self) -> list[float]:
        assert self.axis is not None
        low, high = sorted(self.axis.get_view_interval())
        inside = [ticks[(low <= ticks) & (ticks <= high)] for ticks in self.choices(low, high)]
        several = [ticks for ticks in inside if len(ticks) > 1]
        labels_a_decade = self.axis.get_tick_space() / np.log10(high / low)
        for ticks in several:
            if (labels_a_decade * np.diff(np.log10(ticks)) >= self.least(ticks)).all():
                return list(ticks)
        return list(several[-1])

    @abstractmethod
    def choices(self, low: float, high: float) -> list[Floats]:
        """From the most ticks to the fewest."""

    def least(self, ticks: Floats) -> Floats:
        """How far each tick must be from the one before it."""
        return np.full(len(ticks) - 1, LABEL)


class RoundNumbers(_Roomy):
    """At 1, 2 and 5, at 1 and 3, or at powers of ten."""

    def choices(self, low: float, high: float) -> list[Floats]:
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        steps = [np.outer(powers, numbers).ravel() for numbers in ((1, 2, 5), (1, 3))]
        return [*steps, *(powers[::every] for every in range(1, len(powers)))]


def _times(**numbers: Sequence[float]) -> Floats:
    """In minutes, from numbers by their unit."""
    return np.array([UNITS[unit] * number for unit, own in numbers.items() for number in own])


def _tens(first: int, last: int, *numbers: int) -> list[float]:
    return [number * 10.0**power for power in range(first, last) for number in numbers]


DURATIONS = (
    _times(ms=_tens(-3, 3, 1, 2, 5), s=(1, 2, 5, 10, 30), min=(1, 2, 5, 10, 30), h=(1, 3, 6, 12), d=_tens(0, 9, 1, 2, 5)),
    _times(ms=_tens(-3, 3, 1, 3), s=(1, 3, 10, 30), min=(1, 3, 10, 30), h=(1, 3, 12), d=_tens(0, 9, 1, 3)),
    _times(ms=_tens(-3, 3, 1), s=(1, 10), min=(1, 10), h=(1, 6), d=_tens(0, 9, 1)),
    _times(ms=_tens(-3, 3, 1), s=(1, 10), min=(1, 10), h=(1,), d=_tens(0, 9, 1)),
    _times(ms=(0.001, 1), s=(1,), min=(1,), h=(1,), d=_tens(0, 9, 1)[::2]),
)  # fmt: skip
"""Ticks of an axis of times, from many to few."""


class RoundDurations(_Roomy):
    """At what people call a time, in minutes: 1 s, 10 s, 1 min, 10 min, 1 h, 6 h, 1 d, ..."""

    def choices(self, low: float, high: float) -> list[Floats]:
        fewest = DURATIONS[-1]
        return [*DURATIONS, *(fewest[::every] for every in range(2, len(fewest)))]

    def least(self, ticks: Floats) -> Floats:
        letters = np.array([len(duration(tick)) for tick in ticks])
        apart: Floats = BETWEEN + LETTER * (letters[1:] + letters[:-1]) / 2
        return apart


def logarithmic(axis: Axis, values: Iterable[float]) -> None:
    """A logarithmic axis around the positive values, with plain numbers."""
    known = [value for value in values if value > 0 and isfinite(value)] or [1.0]
    low, high = min(known), max(known)
    more = max(NARROWEST * low / high, (high / low) ** (2 * ROOM)) ** 0.5
    _set(axis, "scale", "log")
    _set(axis, "lim", low / more, high * more)
    axis.set_major_locator(RoundNumbers())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))


def durations(axis: Axis, minutes: Iterable[float]) -> None:
    """A logarithmic axis around these times, with the names that people give them."""
    logarithmic(axis, minutes)
    axis.set_major_locator(RoundDurations())
    axis.set_major_formatter(FuncFormatter(duration))


def linear(axis: Axis, values: Iterable[float]) -> tuple[float, float]:
    """An axis that holds zero and all values; NaN is ignored. Returns the smallest and the largest."""
    known = [0.0, *(value for value in values if isfinite(value))]
    low, high = min(known), max(known)
    room = 0.05 * (high - low or 1)
    _set(axis, "lim", low - room, high + room)
    return low, high


def percent(axis: Axis, values: Iterable[float]) -> None:
    """As `linear`, but logarithmic beyond LINEAR_PERCENT, which its name then says, where a value is beyond WIDE_PERCENT."""
    low, high = linear(axis, values)
    if max(-low, high) > WIDE_PERCENT:
        _set(axis, "scale", "symlog", linthresh=LINEAR_PERCENT)
        if name := axis.get_label_text():
            axis.set_label_text(f"{name}\n{BENT}")
            figure = axis.axes.get_figure(root=True)
            assert figure is not None
            figure.set_figheight(figure.get_figheight() + BENT_IN)
        axis.set_major_locator(FixedLocator(_powers(low, high)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(plain))
        _set(axis, "lim", 1.3 * low - 1, 1.3 * high)


def _powers(low: float, high: float) -> list[float]:
    """Zero and powers of ten on both sides: with those left out for which there is no room."""
    below, above = (int(np.log10(max(end, 1.0))) for end in (-low, high))
    apart = -(-(below + above) // MOST_POWERS)
    return [
        0.0,
        *(-(10.0**power) for power in range(apart, below + 1, apart)),
        *(10.0**power for power in range(apart, above + 1, apart)),
    ]


def goodput(axis: Axis, values: Iterable[float], ends: Iterable[float]) -> None:
    """A linear axis from zero to 100 %, or to values above it and the upper `ends` of their intervals; NaN is ignored.

    Fewer ranks may be faster than the baseline: a line is at 100 then. Ends that are far off do not stretch the axis.
    """
    least = max([100.0, *(value for value in values if isfinite(value))])
    farthest = min(FARTHEST * least, max([least, *(end for end in ends if isfinite(end))]))
    _set(axis, "lim", 0.0, 1.05 * farthest)
    if farthest > 100:
        draw = axis.axes.axvline if isinstance(axis, XAxis) else axis.axes.axhline
        draw(100, color=FAINT, gid="whole", zorder=0.9)  # above the grid


def measured_ranks(axis: Axis, ranks: Iterable[int]) -> None:
    """Powers of two, ticks at measured numbers of ranks only."""
    known = sorted({float(number) for number in ranks})
    _set(axis, "scale", "log", base=2)
    axis.set_major_locator(FixedLocator(known, nbins=MOST_RANKS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))
    _set(axis, "lim", known[0] / 1.2, known[-1] * 1.2)


def _set(axis: Axis, what: str, *values: float | str, **options: float) -> None:
    """Set the scale (`scale`) or the limits (`lim`) of this axis."""
    name = "x" if isinstance(axis, XAxis) else "y"
    getattr(axis.axes, f"set_{name}{what}")(*values, **options)
