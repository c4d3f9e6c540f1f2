"""The parts of a sentence: numbers of a table with their intervals, counts and lists."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ckptbench.answer import quantities
from ckptbench.answer.quantities import Unit

Row = Mapping[str, Any]

TIMES = Unit("times")
HOW_MANY = {1: "the only", 2: "both"}


def amount(row: Row, column: str, unit: Unit) -> str:
    """`12 % [9, 15]`: the number of this column, and its interval where the table has one."""
    value, lo, hi = (float(row.get(f"{column}{end}", math.nan)) for end in ("", "_lo", "_hi"))
    return quantities.amount(value, unit, lo, hi)


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
