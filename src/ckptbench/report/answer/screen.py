"""How an answer is laid out: at most 30 lines of at most 100 characters, as plain text for a terminal, a file and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

from rich.console import Console
from rich.table import Table

from ckptbench.report.answer.quantities import duration

WIDTH = 100
"""Of every answer, on a narrower terminal too: a number is never broken."""
MOST_LINES = 30
NO_RANGE, NONE_HELPS = "-", "none helps"
"""In the place of numbers."""
AT_LEAST, AT_MOST = "at least ", "at most "
"""Before numbers from a bound on the failure rate."""
BOUND = "No failure was seen: the best interval is this or longer, and less is lost."
NOW, AT_BEST = "now", "at the best interval"
NAME = 1
"""The column whose cells are broken where the table is too wide."""
FEWEST_ROWS = 3
"""So many rows stand however long the remarks are, which then lose their last ones."""


def waiting(name: str, when: str, seconds: float) -> str:
    """A sentence on saves that come faster than they are written."""
    return f"{name}: {when} each save waits {duration(seconds)} for the one before, which is still being written."


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    cells: tuple[str, ...]
    importance: tuple[float, ...] = ()
    """Where not all rows fit, those stay that sort first by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """An answer before it is laid out."""

    title: str
    verdict: tuple[str, ...] = ()
    """Sentences on the measurement, the most serious one first."""
    heads: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    """In the order in which they are shown."""
    rest: str = ""
    """The file that has the rows which do not fit."""
    remarks: tuple[str, ...] = ()
    """Sentences below the table, the most important one first."""
    ending: tuple[str, ...] = ()
    """Sentences that always stand last."""


def text(screen: Screen) -> str:
    """The answer as lines that each end with a line break. Rows are left out where not all fit, and then said to be."""
    fewest = min(FEWEST_ROWS, len(screen.lines))
    for remarks in range(len(screen.remarks), -1, -1):
        # Each row takes a line, or more; the 1 is the line that says how many are left out, if all are shown.
        room = MOST_LINES - len(_laid_out(screen, 0, remarks)) + 1
        for rows in range(min(len(screen.lines), max(room, fewest)), fewest - 1, -1):
            laid_out = _laid_out(screen, rows, remarks)
            if len(laid_out) <= MOST_LINES:
                return "\n".join([*laid_out, ""])
    return "\n".join([*laid_out[:MOST_LINES], ""])


def _laid_out(screen: Screen, rows: int, remarks: int) -> list[str]:
    shown = sorted(range(len(screen.lines)), key=lambda place: screen.lines[place].importance)
    lines = [screen.lines[place] for place in sorted(shown[:rows])]
    left_out = len(screen.lines) - rows
    more = f"{left_out} more {'row is' if left_out == 1 else 'rows are'} in {screen.rest}."
    blocks = [
        [*_filled([screen.title]), *_filled(screen.verdict)],
        [*_table(screen.heads, lines), *([more] if left_out else [])] if screen.lines else [],
        _filled([*screen.remarks[:remarks], *screen.ending]),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block).split("\n")


def _filled(sentences: Sequence[str]) -> list[str]:
    return [
        line
        for sentence in sentences
        for line in fill(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False).split(
            "\n"
        )
    ]


def _table(heads: Sequence[str], lines: Sequence[Line]) -> list[str]:
    """With more room between the columns where that breaks no name."""
    wide, narrow = (_with_gaps(heads, lines, gap) for gap in (2, 1))
    return narrow if len(narrow) < len(wide) else wide


def _with_gaps(heads: Sequence[str], lines: Sequence[Line], gap: int) -> list[str]:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="")
    for place, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=place != NAME)
    for line in lines:
        table.add_row(*line.cells)
    return printed(table)


def saves_at(in_use: float, recommended: float) -> str:
    """What stands before what is saved, where failures may be rarer: a longer interval in use then loses less than it seems, a shorter one still
    saves too often."""
    return AT_MOST if in_use > recommended else AT_LEAST


def printed(table: Table, width: int = WIDTH) -> list[str]:
    """The lines of a table, whose cells are shown as they are."""
    console = Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]
