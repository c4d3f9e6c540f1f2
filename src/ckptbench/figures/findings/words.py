"""The parts of a sentence: names of setups, numbers with their intervals, lists of bounded length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ckptbench.answer.labels import counted
from ckptbench.answer.setups import (
    SYSTEM,
    constants,
    dependent,
    in_words,
    separating,
    varying,
    with_hardware,
)

Row = Mapping[str, Any]

MOST = 12
"""How many sentences of one kind a page has. The tables have the rest."""
DIGITS = 2
"""Significant digits of a number that has no interval."""
MOST_DIGITS = 4
"""Significant digits of a number with an interval, however narrow that is: what was left out of the interval is wider."""
STEPS_WIDE, STEPS_WIDE_ABOUT_ZERO = 3, 6
"""An interval is at least so many steps of its last digit wide, so that its ends differ."""
NOT_ZERO = 0.02
"""A number of this part of its interval's width is not shown as zero, though the interval allows no digit of it."""
HOW_MANY = {1: "the only", 2: "both"}


@dataclass(frozen=True, slots=True)
class Unit:
    """How a number of a table is shown: `0.05` as `5 %`. A plain number has a unit with an empty name."""

    name: str
    scale: float = 1.0


SECONDS = Unit("s")
PERCENT = Unit("%", 100.0)
IMAGES = Unit("images/s")


@dataclass(frozen=True, slots=True)
class Study:
    """What all setups of a study have in common, and what separates them."""

    shared: tuple[str, ...]
    """Sentences on columns that do not vary, and on those that follow from others: `ResNet-50, batch 16 per rank`."""
    varying: tuple[str, ...]
    """Columns that the name of a setup needs beside framework and ranks."""

    @classmethod
    def of(cls, tables: Sequence[pd.DataFrame]) -> Study:
        """The study that these tables are of. A table may lack some of the columns."""
        known = [with_hardware(table) for table in tables if len(table)]
        if not known:
            return cls((), ())
        columns = [name for name in SYSTEM if all(name in table for table in known)]
        every = pd.concat([table[columns] for table in known], ignore_index=True)
        said = (", ".join(constants(every, SYSTEM)), "; ".join(dependent(every, columns)))
        return cls(
            tuple(capitalized(text) for text in said if text), tuple(separating(every, columns))
        )

    def names(self, rows: pd.DataFrame, *others: str) -> pd.Series:
        """One name a row: `PyTorch, 2 ranks`, with whatever else varies and the columns `others`."""
        known = with_hardware(rows)
        columns = ["framework", "ranks", *self.varying, *others]
        return in_words(known, [name for name in columns if name in known], ", ")


def of_checkpoints(rows: pd.DataFrame) -> list[str]:
    """Columns on the checkpoints that the name of a setup needs: the format where a framework has several.

    The recovery too: an elastic one has its own undisturbed runs.
    """
    several = bool((rows.groupby("framework")["format"].nunique() > 1).any())
    return [*(["format"] if several else []), *varying(rows, ["strategy", "recovery"])]


def amount(row: Row, column: str, unit: Unit) -> str:
    """`12 % [9, 15]`: the number of this column, and its interval where the table has one.

    It has as many digits as the width of the interval allows, and at most MOST_DIGITS. An interval that these do not show is left out.
    """
    value, lo, hi = (
        unit.scale * float(row.get(name, math.nan))
        for name in (column, f"{column}_lo", f"{column}_hi")
    )
    if not lo < hi:
        return f"{_digits(value, _last_digit(abs(value), DIGITS))} {unit.name}".rstrip()
    step = _last_of_interval(value, lo, hi)
    shown, low, high = (_digits(number, step) for number in (value, lo, hi))
    if float(shown) == 0 and abs(value) >= NOT_ZERO * (hi - lo):
        shown = _digits(value, _exponent(abs(value)))
    named = f"{shown} {unit.name}".rstrip()
    return named if low == high else f"{named} [{low}, {high}]"


def _last_of_interval(value: float, lo: float, hi: float) -> int:
    """The exponent of ten of the last digit that is shown of a value and of its interval."""
    if lo <= 0 <= hi:
        return _exponent((hi - lo) / STEPS_WIDE_ABOUT_ZERO)
    nearest_zero = min(abs(lo), abs(hi), abs(value))
    allowed = min(_exponent((hi - lo) / STEPS_WIDE), _exponent(nearest_zero))
    return max(allowed, _last_digit(nearest_zero, MOST_DIGITS))


def contains_zero(row: Row, column: str) -> bool:
    return bool(row[f"{column}_lo"] <= 0 <= row[f"{column}_hi"])


def has_interval(row: Row, column: str) -> bool:
    return not pd.isna(row[f"{column}_lo"])


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


def bounded(sentences: Sequence[str], table: str) -> list[str]:
    """The first MOST of them, and how many more the table has."""
    rest = len(sentences) - MOST
    if rest <= 0:
        return list(sentences)
    return [*sentences[:MOST], f"{rest} more {'is' if rest == 1 else 'are'} in the table {table}."]


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
