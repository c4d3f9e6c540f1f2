"""Axes for people: times have ticks at 1 s, 10 s, 1 min, 1 h, and numbers have no powers. Linear axes are matplotlib's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite, isnan

import numpy as np
from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator

from ckptbench.decide.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.figures.kit.style import FAINT

ROOM = 0.05
"""Part of a logarithmic axis that is left free at each end."""
NARROWEST = 6
"""The least factor between both ends of a logarithmic axis: it has two ticks at least."""
TIMES = {
    "s": (1.0, (2, 5, 10, 20, 30)),
    "min": (SECONDS_PER_MINUTE, (2, 5, 10, 20, 30)),
    "h": (SECONDS_PER_HOUR, (2, 5, 10)),
    "d": (SECONDS_PER_DAY, (2, 5, 10, 30, 100)),
    "y": (365 * SECONDS_PER_DAY, (2, 5, 10, 20, 50, 100, 1000, 10_000)),
}
"""Units of time in seconds, each with the numbers of it that may have a tick beside 1."""
POWERS = range(-12, 13)
LABEL = 1.3
"""Least distance of two ticks, in what matplotlib takes for the size of a label."""
LINEAR_PERCENT = 10
WIDE_PERCENT = 100
"""On a linear axis that goes further than this, a few percent cannot be told apart."""
FARTHEST = 2
"""How many times as far as the values, or the whole, intervals may make an axis reach."""
MOST_RANKS = 6
"""So many numbers of ranks have a tick."""


def plain(number: float, _place: object = None) -> str:
    """`20,000`, `0.05`: no powers, no trailing zeros."""
    if abs(number) < 1000:
        return str(np.format_float_positional(number, trim="-", precision=9))
    return f"{number:,.0f}"


def duration(seconds: float, _place: object = None) -> str:
    """`0.5 s`, `10 min`: in the longest unit of which there is at least one."""
    name, size = next(
        ((name, size) for name, (size, _) in reversed(TIMES.items()) if seconds >= size), ("s", 1.0)
    )
    return f"{plain(seconds / size)} {name}"


def durations(axis: Axis, values: Iterable[float]) -> None:
    """A logarithmic axis around these positive times, in seconds, with ticks at times that people say."""
    parts = [10.0**power for power in POWERS if power < 0]
    units = [size for size, _ in TIMES.values()]
    every = [size * number for size, numbers in TIMES.values() for number in numbers]
    tens = [10 * size for name, (size, _) in TIMES.items() if name != "h"]
    choices = [
        [*(step * part for part in parts for step in (1, 2, 5)), *units, *every],
        [*parts, *units, *tens],
        *(
            [*(step * part for part in parts for step in steps), *units]
            for steps in ((1, 5), (2,), (5,))
        ),
        [*parts[::-2], *units],
        [*parts[::-3], *units[::2]],
    ]
    _make_logarithmic(axis, values, choices)
    axis.set_major_formatter(FuncFormatter(duration))


def logarithmic(axis: Axis, values: Iterable[float]) -> None:
    """A logarithmic axis around the positive values, with plain numbers."""
    powers = [10.0**power for power in POWERS]
    choices = [[step * power for power in powers for step in steps] for steps in ((1, 2, 5), (1, 3))]  # fmt: skip
    _make_logarithmic(axis, values, [*choices, *(powers[::every] for every in (1, 2, 3, 4, 6))])
    axis.set_major_formatter(FuncFormatter(plain))


class _Fitting(Locator):
    """Of several sets of ticks the first whose labels fit beside one another: the layout decides how long the axis is."""

    def __init__(self, choices: Sequence[Sequence[float]]) -> None:
        self._choices = [sorted(ticks) for ticks in choices]

    def __call__(self) -> list[float]:
        assert isinstance(self.axis, Axis)
        return self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        assert isinstance(self.axis, Axis)
        labels = self.axis.get_tick_space() / np.log(vmax / vmin)
        inside = [[tick for tick in ticks if vmin <= tick <= vmax] for ticks in self._choices]
        several = [ticks for ticks in inside if len(ticks) > 1]
        fitting = (ticks for ticks in several if labels * np.diff(np.log(ticks)).min() >= LABEL)
        return next(fitting, several[-1] if several else inside[0])


def _make_logarithmic(
    axis: Axis, values: Iterable[float], choices: Sequence[Sequence[float]]
) -> None:
    known = [value for value in values if value > 0 and isfinite(value)] or [1.0]
    low, high = min(known), max(known)
    more = max(NARROWEST * low / high, (high / low) ** (2 * ROOM)) ** 0.5
    _set_scale(axis, "log")
    _set_limits(axis, low / more, high * more)
    axis.set_major_locator(_Fitting(choices))
    axis.set_minor_locator(NullLocator())


def percent(axis: Axis, values: Sequence[float]) -> None:
    """An axis that holds zero and all values; logarithmic beyond LINEAR_PERCENT where they are wide apart."""
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    room = 0.05 * (high - low or 1)
    if is_wide(values):
        _set_scale(axis, "symlog", linthresh=LINEAR_PERCENT)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(plain))
        _set_limits(axis, 1.3 * low - 1, 1.3 * high)
    else:
        _set_limits(axis, low - room, high + room)


def is_wide(values: Iterable[float]) -> bool:
    """Whether an axis with these values, in percent, is better not linear."""
    return max(map(abs, values), default=0) > WIDE_PERCENT


def reach(values: Iterable[float], ends: Iterable[float]) -> float:
    """How far an axis with parts of a whole must reach, in percent: to 100, or to values above it and the upper `ends` of their
    intervals; NaN is ignored. Where an end is so far off that values would be hard to tell apart, the axis ends before."""
    least = max([100.0, *(value for value in values if not isnan(value))])
    return min(FARTHEST * least, max([least, *(end for end in ends if not isnan(end))]))


def of_whole(axis: Axis, farthest: float) -> None:
    """A linear axis from zero to `farthest`, in percent of a whole. Where it goes beyond the whole, a line is at 100."""
    _set_limits(axis, 0.0, 1.05 * farthest)
    if farthest > 100:
        draw = axis.axes.axvline if isinstance(axis, XAxis) else axis.axes.axhline
        draw(100, color=FAINT, gid="whole", zorder=0.9)  # above the grid


def measured_ranks(axis: Axis, ranks: Iterable[int]) -> None:
    """Powers of two, ticks at measured numbers of ranks only."""
    known = sorted({float(number) for number in ranks})
    _set_scale(axis, "log", base=2)
    axis.set_major_locator(FixedLocator(known, nbins=MOST_RANKS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))
    _set_limits(axis, known[0] / 1.2, known[-1] * 1.2)


def _set_scale(axis: Axis, name: str, **options: float) -> None:
    setter = axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale
    setter(name, **options)


def _set_limits(axis: Axis, low: float, high: float) -> None:
    setter = axis.axes.set_xlim if isinstance(axis, XAxis) else axis.axes.set_ylim
    setter(low, high)
