"""An answer as text: a line for the interval in use and one for each strategy, at most `WIDTH` characters wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ckptbench.answer.quantities import (
    PERCENT,
    Unit,
    amount,
    duration,
    plain,
    span,
    unit_of_times,
)
from ckptbench.answer.screen import CANNOT, NONE_HELPS, UNTOLD, WIDTH
from ckptbench.commands.case import Choice, Known
from ckptbench.commands.told import helps_nothing, is_told

GAP = 2
LONGEST_NAME, SHORTEST_NAME = 24, 8
"""A longer name is broken: at the latest here, and sooner where numbers need the room."""
Cells = tuple[str, str, str, str, str]
"""Name, interval, loss, what is saved, and the fine range."""


def table(choices: Sequence[Choice]) -> str:
    """Lines that each end with a line break. Fine ranges stand below the table where they do not fit."""
    rows = list(_cells(choices))
    below = ""
    if SHORTEST_NAME + _width(rows) > WIDTH:
        below = f"Fine: {', '.join(f'{_fine(each)} ({each.name})' for each in choices if is_told(each))}."
        rows = [(*row[:-1], "") for row in rows]
    longest = min(LONGEST_NAME, WIDTH - _width(rows))
    return _laid_out(rows, longest) + (paragraph(below) if below else "")


def paragraph(text: str) -> str:
    """The text in lines of `WIDTH`, each with a line break."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False) + "\n"


def remarks(choices: Sequence[Choice]) -> Iterator[str]:
    """Sentences on the numbers."""
    now = choices[0].now
    if now is not None and len(choices) > 1:
        yield f"The interval in use is taken to be of {now.name}."
    for choice in choices:
        if not choice.steps.tells:
            unit = unit_of_times([choice.interval_s.value])
            between = span(choice.interval_s.lo, choice.interval_s.hi, unit)
            yield f"{choice.name}: the best interval is anywhere from {between}, by what is known, so none is recommended."
    if not all(each.loses.tells for each in (*choices, *([now] if now else []))):
        yield f"{UNTOLD}: cannot be told, as its interval spans more than ten-fold."
    others = [choice.other_s for choice in choices if choice.other_s is not None]
    if len(others) == len(choices) and all(map(is_told, choices)):
        rarer, oftener = (", ".join(map(duration, every)) for every in zip(*others, strict=True))
        yield f"Best with a third as many failures: {rarer}; with three times as many: {oftener}."


def _cells(choices: Sequence[Choice]) -> Iterator[Cells]:
    unit = " GPU-hours a day"  # said once
    now = choices[0].now
    for choice in (*([now] if now else []), *choices):
        saves = _saves(choice)
        yield (
            "now" if choice is now else choice.name,
            _interval(choice),
            f" loses {_shown(choice.loses, PERCENT)}",
            f" saves {saves}{unit}" if saves else "",
            f" (fine: {_fine(choice)})" if choice.fine_steps and is_told(choice) else "",
        )
        unit = "" if saves else unit


def _width(rows: Sequence[Cells]) -> int:
    """Of all columns but the names, with the gaps before them."""
    widths = (max(map(len, column)) for column in list(zip(*rows, strict=True))[1:])
    return sum(GAP + width for width in widths if width)


def _laid_out(rows: Sequence[Cells], longest_name: int) -> str:
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(overflow="fold", max_width=longest_name)
    grid.add_column(justify="right", no_wrap=True)
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    for _ in columns[2:]:
        grid.add_column(no_wrap=True)
    for cells in zip(*columns, strict=True):
        grid.add_row(*map(Text, cells))
    file = StringIO()
    Console(width=WIDTH + GAP, file=file, color_system=None).print(grid)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _saves(choice: Choice) -> str:
    """GPU-hours a day. Empty where there is nothing to compare with."""
    if choice.now is None or choice.saves_gpu_hours is None or not is_told(choice):
        return ""
    if not (choice.loses.tells and choice.now.loses.tells):
        return UNTOLD
    return plain(max(0.0, choice.saves_gpu_hours))


def _interval(choice: Choice) -> str:
    if helps_nothing(choice) and choice.fine_steps is not None:
        return NONE_HELPS
    return _shown(choice.interval_s, unit_of_times([choice.interval_s.value]), CANNOT)


def _fine(choice: Choice) -> str:
    assert choice.fine_steps is not None
    step_s = choice.interval_s.value / choice.steps.value
    lo, hi = (steps * step_s for steps in choice.fine_steps)
    return span(lo, hi, unit_of_times([choice.interval_s.value]))


def _shown(known: Known, unit: Unit, untold: str = UNTOLD) -> str:
    return amount(known.value, unit, known.lo, known.hi) if known.tells else untold
