"""The parts of a sentence: names of setups, numbers with their intervals, lists of bounded length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckptbench.answer.labels import counted

Row = Mapping[str, Any]

DIGITS = 2
"""Significant digits of a number that has no interval."""
MOST_DIGITS = 5
"""Significant digits of a number whose interval is narrower than a step of the last of them: such an interval is not shown."""
STEPS_WIDE = 10
"""An interval is at least so many steps of its last digit wide, so that rounding changes a number by at most a twentieth of it."""
NOT_ZERO = 0.02
"""A number of this part of its interval's width is not shown as zero, though the interval allows no digit of it."""
HOURS_PER_DAY = 24
DAYS_PER_YEAR = 365.25
BELOW_WHOLE = 9.95
"""From here on a plain number has no digit behind the point."""
HOW_MANY = {1: "the only", 2: "both"}


@dataclass(frozen=True, slots=True)
class Unit:
    """How a number of a table is shown: `0.05` as `5 %`. A plain number has a unit with an empty name."""

    name: str
    scale: float = 1.0


SECONDS = Unit("s")
PERCENT = Unit("%", 100.0)
IMAGES = Unit("images/s")


def amount(row: Row, column: str, unit: Unit) -> str:
    """`12 % [9, 15]`: the number of this column, and its interval where the table has one.

    Rounding changes neither by more than a twentieth of the interval. One that is too narrow for MOST_DIGITS is left out.
    """
    value, lo, hi = (
        unit.scale * float(row.get(name, math.nan))
        for name in (column, f"{column}_lo", f"{column}_hi")
    )
    if not lo < hi:
        return f"{_digits(value, _last_digit(abs(value), DIGITS))} {unit.name}".rstrip()
    step = _last_of_interval(lo, hi)
    least = _last_digit(max(abs(lo), abs(hi)), MOST_DIGITS)
    if step < least:
        return f"{_digits(value, least)} {unit.name}".rstrip()
    shown, low, high = (_digits(number, step) for number in (value, lo, hi))
    if float(shown) == 0 and abs(value) >= NOT_ZERO * (hi - lo):
        shown = _digits(value, _exponent(abs(value)))
    return f"{f'{shown} {unit.name}'.rstrip()} [{low}, {high}]"


def _last_of_interval(lo: float, hi: float) -> int:
    """The exponent of ten of the last digit that is shown of an interval and of its value. An end that is not zero is not shown as zero."""
    step = _exponent((hi - lo) / STEPS_WIDE)
    return step if lo <= 0 <= hi else min(step, _exponent(min(abs(lo), abs(hi))))


def plain(number: float) -> str:
    """`0.0067`, `9.1`, `41`, `1,090`: two digits below ten, above it whole with three digits that count."""
    if abs(number) < BELOW_WHOLE:
        return _digits(number, _last_digit(abs(number), DIGITS))
    return f"{float(f'{number:.3g}'):,.0f}"


def duration(hours: float) -> str:
    """`12 s`, `5.2 minutes`, `3.1 hours`, `40 days`, `12 years`."""
    for name, scale, most in (
        ("s", 3600.0, 1 / 60),
        ("minutes", 60.0, 2.0),
        ("hours", 1.0, 48.0),
        ("days", 1 / HOURS_PER_DAY, 2 * DAYS_PER_YEAR * HOURS_PER_DAY),
    ):
        if hours < most:
            return f"{amount({'n': hours * scale}, 'n', Unit(''))} {name}"
    return f"{amount({'n': hours / HOURS_PER_DAY / DAYS_PER_YEAR}, 'n', Unit(''))} years"


def size(number_of_bytes: float) -> str:
    """`189 MB`, where 1 MB is 1,000,000 bytes."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number_of_bytes >= scale:
            number = number_of_bytes / scale
            return f"{_digits(number, _last_digit(number, 3))} {unit}"
    return counted(round(number_of_bytes), "byte")


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; with semicolons where one of them has a comma."""
    if any("," in word for word in words):
        return "; ".join(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def every(number: int, noun: str) -> str:
    """`the only run`, `both runs`, `all 3 runs`."""
    plural = noun if number == 1 else f"{noun}s"
    return f"{HOW_MANY.get(number, f'all {number}')} {plural}"


def capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" if text else text


def _last_digit(number: float, digits: int) -> int:
    """The exponent of ten of the last of so many significant digits."""
    return _exponent(number) - digits + 1 if number else 0


def _exponent(number: float) -> int:
    return math.floor(math.log10(number))


def _digits(number: float, step: int) -> str:
    """Rounded to this power of ten. Never `-0`."""
    rounded = round(number, -step) + 0.0
    return f"{rounded:.{max(0, -step)}f}"
