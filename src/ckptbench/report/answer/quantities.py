"""Numbers as people write and read them: `2h`, `98 GB`, `1.6 GiB/s`, `2880 steps`; `41 min`, `5.7 %`, `182`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ckptbench.common.errors import ConfigError
from ckptbench.decide.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.matrix.shown import show

TIMES: Mapping[str, float] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), SECONDS_PER_MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), SECONDS_PER_HOUR),
    **dict.fromkeys(("d", "day", "days"), SECONDS_PER_DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * SECONDS_PER_DAY),
    **dict.fromkeys(("month", "months"), 365.25 / 12 * SECONDS_PER_DAY),
    **dict.fromkeys(("y", "year", "years"), 365.25 * SECONDS_PER_DAY),
}
"""Units of time that are read, in seconds."""
_SIZES: Mapping[str, float] = {
    **dict.fromkeys(("B", "byte", "bytes"), 1.0),
    "kB": 1e3,
    "KB": 1e3,
    **{f"{letter}B": 1000.0**power for power, letter in enumerate("MGTP", 2)},
    **{f"{letter}iB": 1024.0**power for power, letter in enumerate("KMGTP", 1)},
}
_OF_DU: Mapping[str, float] = {letter: 1024.0**power for power, letter in enumerate("KMGTP", 1)}
SIZES = {**_SIZES, **{name.lower(): size for name, size in _SIZES.items()}, **_OF_DU}
"""Units of size that are read, in bytes. `98G` is what `du -h` prints for 98 GiB. `Gb` is none: it may mean bits."""
BANDWIDTHS: Mapping[str, float] = {
    **{f"{name}{end}": size for name, size in _SIZES.items() for end in ("/s", "ps")},
    **{f"{letter}bit/s": 1000.0**power / 8 for power, letter in enumerate("MGT", 2)},
}
"""Units of bandwidth that are read, in bytes in a second. `gb/s` is none: it may mean bits."""
NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
PART = re.compile(rf"\s*({NUMBER})\s*([A-Za-z]+(?:/s)?)")
STEPS = re.compile(rf"\s*({NUMBER})\s*steps?\s*", re.IGNORECASE)
COUNT = re.compile(rf"\s*({NUMBER})\s*")
PRICE = re.compile(rf"\s*([^\d\s.,+-]{{0,8}})\s*({NUMBER})\s*([^\d\s.,+-]{{0,8}})\s*")
MOST = 10**6
"""More GPUs than anybody has."""
LARGEST = 1e18
"""No time, size or number beyond it can be meant, and none above 0 below its reciprocal."""

DIGITS = 2
"""Significant digits of a number that has no interval."""
MOST_DIGITS = 4
"""Significant digits of a number whose interval is too narrow to be shown."""
NARROW = 0.001
"""An interval narrower than this part of its number is not shown."""
STEPS_WIDE = 10
"""An interval is at least so many steps of the last digit wide, so that rounding moves a number by at most a twentieth of it."""
NOT_ZERO = 0.02
"""A number of this part of its interval's width is not shown as zero, though the interval allows no digit of it."""
SAVED_FROM = 0.005
"""Where fewer GPU-hours a day are lost than these, two losses are alike."""
TELLS = 10.0
"""An interval that spans more than this factor does not tell its number."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How a number is shown: with the scale 100, `0.05` as `5 %`. A plain number has a unit with an empty name."""

    name: str
    scale: float = 1.0


PLAIN = Unit("")
PERCENT = Unit("%", 100.0)
SECONDS = Unit("s")
MINUTES = Unit("min", 1 / SECONDS_PER_MINUTE)
HOURS = Unit("h", 1 / SECONDS_PER_HOUR)
DAYS = Unit("days", 1 / SECONDS_PER_DAY)
LONGEST = ((SECONDS, 90.0), (MINUTES, 3 * SECONDS_PER_HOUR), (HOURS, 3 * SECONDS_PER_DAY))
"""Each unit of time, with the longest time in seconds that is said in it. Longer ones are said in days."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, and the ends of its 95 % interval: NaN where nothing says how far it differs."""

    value: float
    lo: float = math.nan
    hi: float = math.nan

    @classmethod
    def of(cls, row: Mapping[str, Any], column: str, scale: float = 1.0) -> Self:
        """This column of a table, with its interval where the table has one."""
        return cls(*(scale * float(row.get(f"{column}{end}", math.nan)) for end in ("", "_lo", "_hi")))  # fmt: skip

    @property
    def rest(self) -> Quantity:
        """1 - this part: the ends of its interval change places."""
        return Quantity(1 - self.value, 1 - self.hi, 1 - self.lo)

    @property
    def opposite(self) -> Quantity:
        """What is saved, where this is lost: the ends of its interval change places."""
        return Quantity(-self.value, -self.hi, -self.lo)

    @property
    def is_conclusive(self) -> bool:
        """Whether its interval spans no more than `TELLS`. One that is unknown tells nothing against the number."""
        return not self.hi > TELLS * self.lo

    def shown(self, unit: Unit) -> str:
        """`12 % [9, 15]`."""
        return amount(self.value, unit, self.lo, self.hi)


@dataclass(frozen=True, slots=True)
class Every:
    """An interval between checkpoints as it was given: in seconds or in steps, one of which is None."""

    seconds: float | None = None
    steps: int | None = None

    def in_steps(self, step_s: float) -> int:
        """The whole number of steps that is nearest, at least one."""
        return self.steps or max(1, round((self.seconds or 0.0) / step_s))


def read_time(text: str) -> float:
    """Seconds. Parts are added: `1h 30min`. Raises ConfigError, as all of these do, with the words that are read."""
    return _sum(text, TIMES, "a time", "90s, 8 min, 2h, 1h30min or 3 days")


def read_size(text: str) -> float:
    """Bytes: `98GB` (10⁹ bytes each) or `98 GiB` (2³⁰)."""
    return _sum(text, SIZES, "a size", "98GB or 512 MiB; bits are not read")


def read_bandwidth(text: str) -> float:
    """Bytes in a second."""
    return _sum(text, BANDWIDTHS, "a bandwidth", "1.6GB/s, 800 MiB/s or 100 Gbit/s")


def read_every(text: str) -> Every:
    """An interval between checkpoints: a time, or `2880 steps`."""
    if match := STEPS.fullmatch(text):
        number = _number(match[1])
        if 1 <= number <= LARGEST and number == int(number):
            return Every(steps=int(number))
        raise ConfigError(f"{show(text)} is not an interval: use a whole number of steps from 1")
    return Every(seconds=_sum(text, TIMES, "an interval", '2h, 30 min or "2880 steps"'))


def read_count(text: str) -> int:
    """A whole number, as of GPUs: `1024` or `1,024`."""
    match = COUNT.fullmatch(text)
    number = _number(match[1]) if match else 0.0
    if not (1 <= number <= MOST and number == int(number)):
        raise ConfigError(
            f"{show(text)} is not a valid number: use a whole number from 1 to {MOST:,}"
        )
    return int(number)


def _sum(text: str, units: Mapping[str, float], what: str, as_in: str) -> float:
    end, total = 0, 0.0
    while match := PART.match(text, end):
        size = units.get(match[2], TIMES.get(match[2].lower()) if units is TIMES else None)
        if size is None:
            break
        end, total = match.end(), total + _number(match[1]) * size
    if not end or text[end:].strip():
        raise ConfigError(f"{show(text)} is not {what}: write a number and its unit, as in {as_in}")
    if not 1 / LARGEST <= total <= LARGEST:
        use = "one above 0" if total < 1 else "a smaller one"
        raise ConfigError(f"{show(text)} is not {what} in the possible range: use {use}")
    return total


def _number(digits: str) -> float:
    return float(digits.replace(",", ""))


def unit_of_time(seconds: float) -> Unit:
    """The unit in which so long a time is said."""
    return next((unit for unit, longest in LONGEST if not seconds > longest), DAYS)


def duration(seconds: float, lo: float = math.nan, hi: float = math.nan) -> str:
    """`41 min`, or with an interval `41 min [34, 52]`."""
    return amount(seconds, unit_of_time(seconds), lo, hi)


def percent(part: float, lo: float = math.nan, hi: float = math.nan) -> str:
    """`5.7 %` of 0.057, or with an interval `5.7 % [5.1, 6.4]`."""
    return amount(part, PERCENT, lo, hi)


def size(number_of_bytes: float) -> str:
    """`189 MB`, where 1 MB is 1,000,000 bytes."""
    for name, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number_of_bytes >= scale:
            number = number_of_bytes / scale
            return f"{_digits(number, _last_digit(number, 3))} {name}"
    number = round(number_of_bytes)
    return f"{number} {'byte' if number == 1 else 'bytes'}"


def percent_of(part: float, sign: str = "") -> str:
    """`3.2 %`, `120 %`, of a part: two digits, and all of a whole number. `sign` is "+" where a gain needs one."""
    number = 100 * part
    text = f"{number:{sign}.2g}" if abs(number) < 99.5 else f"{number:{sign},.0f}"
    return f"{text} %".replace("-", "\N{MINUS SIGN}")


def more(ratio: float) -> str:
    """`+0.11 %`, `+149 %`: what is written beyond what must be, in percent of it."""
    return percent_of(ratio - 1, "+")


def plain(number: float) -> str:
    """`182`, `1,024`, `0.31`: DIGITS significant digits, and all of those before the point."""
    return _digits(number, min(0, _last_digit(number, DIGITS)))


def saved(gpu_hours: float) -> str:
    """`182` in a day; `-2,069` where so many more are lost."""
    return plain(gpu_hours if abs(gpu_hours) >= SAVED_FROM else max(gpu_hours, 0.0))


def span(lo: float, hi: float, unit: Unit) -> str:
    """`20 - 81 min`, each end like `plain`."""
    return f"{plain(lo * unit.scale)} - {plain(hi * unit.scale)} {unit.name}".rstrip()


def amount(value: float, unit: Unit = PLAIN, lo: float = math.nan, hi: float = math.nan) -> str:
    """`12 % [9, 15]`: the number, and its interval where that is known and wide enough to be seen.

    Each has as many digits as move it by at most a twentieth of the interval.
    """
    value, lo, hi = (unit.scale * each for each in (value, lo, hi))
    if not lo < hi or hi - lo < NARROW * abs(value):
        shown = plain(value) if not lo < hi else _digits(value, _last_digit(value, MOST_DIGITS))
        return f"{shown} {unit.name}".rstrip()
    step = _exponent((hi - lo) / STEPS_WIDE)
    shown, low, high = (_digits(each, _own_step(each, step, lo, hi)) for each in (value, lo, hi))
    if float(shown.replace(",", "")) == 0 and abs(value) >= NOT_ZERO * (hi - lo):
        shown = _digits(value, _exponent(value))
    return f"{f'{shown} {unit.name}'.rstrip()} [{low}, {high}]"


def _own_step(number: float, step: int, lo: float, hi: float) -> int:
    """Finer than that of the interval where the number would lose its digits, and zero is not in the interval."""
    return step if lo <= 0 <= hi else min(step, _last_digit(number, DIGITS))


def _last_digit(number: float, digits: int) -> int:
    """The exponent of ten of the last of so many significant digits."""
    return _exponent(number) - digits + 1 if number and math.isfinite(number) else 0


def _exponent(number: float) -> int:
    return math.floor(math.log10(abs(number)))


def _digits(number: float, step: int) -> str:
    """Rounded to this power of ten; none before the point is lost. Never `-0`."""
    rounded = round(number, max(0, -step)) + 0.0
    return f"{rounded:,.{max(0, -step)}f}"
