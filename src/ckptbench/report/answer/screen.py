"""How an answer is laid out, as lines for a terminal, a file and a page: facts, a table, at most three lines of notes, and an ending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from ckptbench.report.answer.layout import Block, Kind, Printed, filled, losses, table

WIDTH = 80
"""Of an answer that is no terminal's."""
MOST_LINES = 30
MOST_NOTES = 3
"""Lines of notes. With `--explain` all are printed."""
NAME = 1
"""The column whose cells are broken where a table with heads is too wide."""
FEWEST_ROWS = 3
"""So many rows stand however long the remarks are, which then lose their last ones."""
WARNINGS = ("Do not", "Not the device requested")
"""How sentences begin that are printed in red."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table with heads."""

    cells: tuple[str, ...]
    importance: tuple[float, ...] = ()
    """Where not all rows fit, those stay that sort first by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """An answer before it is laid out."""

    title: str = ""
    verdict: tuple[str, ...] = ()
    """Sentences on the measurement, the most serious one first, which stands above the table."""
    heads: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    """In the order in which they are shown: of `blocks` too, for a page."""
    blocks: tuple[Block, ...] = ()
    """Where there are any, they are printed in place of `lines`."""
    unit: str = "GPU"
    """What is counted."""
    rest: str = ""
    """The file that has the rows which do not fit."""
    more: str = "with --explain"
    """Where the notes are that are left out."""
    advice: tuple[str, ...] = ()
    """Sentences right below the table: what to do."""
    remarks: tuple[str, ...] = ()
    """Sentences below the table, the most important one first."""
    explained: tuple[str, ...] = ()
    """Sentences that only `--explain` prints."""
    ending: tuple[str, ...] = ()
    """Sentences that always stand last."""


def text(screen: Screen) -> str:
    """The answer as lines that each end with a line break. Rows are left out where not all fit, and then said to be."""
    return "".join(f"{line.text}\n" for line in printed(screen))


def printed(screen: Screen, width: int = WIDTH, *, explain: bool = False) -> list[Printed]:
    """Its lines."""
    if not screen.blocks:
        return [Printed(line, Kind.ROW) for line in _with_heads(screen, width)]
    above = [Printed(line, _kind(line)) for line in _filled([screen.title, *screen.verdict[:1]], width)]  # fmt: skip
    if explain:
        middle = [*table(screen.blocks, width, screen.unit)]
        split = [Printed(line, Kind.ROW) for line in losses(screen.blocks)]
        return _together(
            [
                above,
                middle,
                split,
                [*_notes(screen, width, explain=True), *_plain(screen.ending, width)],
            ]
        )
    below = [*_notes(screen, width, explain=False), *_plain(screen.ending, width)]
    number = sum(len(block.choices) for block in screen.blocks)
    room = MOST_LINES - len(above) - len(below)  # a row takes a line or more
    most = min(number, max(room, FEWEST_ROWS)) if screen.rest else number
    for rows in range(most, 0, -1):
        shown = _most_important(screen.blocks, rows)
        left_out = number - sum(len(block.choices) for block in shown)
        more = [f"{left_out} more {'row is' if left_out == 1 else 'rows are'} in {screen.rest}."] if left_out else []  # fmt: skip
        middle = [*table(shown, width, screen.unit), *_plain(more, width)]
        lines = _together([above, middle, below])
        if not screen.rest or len(lines) <= MOST_LINES or rows <= FEWEST_ROWS:
            return lines
    return lines


def _together(parts: Sequence[Sequence[Printed]]) -> list[Printed]:
    """With an empty line between them."""
    lines: list[Printed] = []
    for part in filter(None, parts):
        lines += [*([Printed("", Kind.ROW)] if lines else []), *part]
    return lines


def _notes(screen: Screen, width: int, *, explain: bool) -> Iterator[Printed]:
    """At most `MOST_NOTES` lines, those that come first and fit, and how many notes are left out."""
    yield from (Printed(line, Kind.ADVICE) for line in _filled(screen.advice, width))
    notes = [*screen.verdict[1:], *screen.remarks]
    if explain:
        yield from _plain([*notes, *screen.explained], width)
        return
    room, left_out = MOST_NOTES, 0
    for note in notes:
        lines = _filled([note], width)
        if len(lines) <= room:
            room -= len(lines)
            yield from (Printed(line, _kind(line)) for line in lines)
        else:
            left_out += 1
    if left_out:
        counted = "note" if left_out == 1 else "notes"
        yield Printed(f"{left_out} more {counted} {screen.more}.", Kind.NOTE)


def _plain(sentences: Sequence[str], width: int) -> list[Printed]:
    return [Printed(line, _kind(line)) for line in _filled(sentences, width)]


def _kind(line: str) -> Kind:
    return Kind.WARNING if line.startswith(WARNINGS) else Kind.NOTE


def _most_important(blocks: Sequence[Block], rows: int) -> list[Block]:
    """So many rows: the first of each block before the second, and that of the last block, which has the most GPUs, before that of others."""
    places = [
        (nth, -number, number)
        for number, block in enumerate(blocks)
        for nth in range(len(block.choices))
    ]
    kept = sorted(places)[:rows]
    of_block = [sum(number == each for *_, each in kept) for number in range(len(blocks))]
    return [
        replace(block, choices=block.choices[:own])
        for block, own in zip(blocks, of_block, strict=True)
        if own
    ]


def _with_heads(screen: Screen, width: int) -> list[str]:
    fewest = min(FEWEST_ROWS, len(screen.lines))
    for remarks in range(len(screen.remarks), -1, -1):
        # Each row takes a line, or more; the 1 is the line that says how many are left out, if all are shown.
        room = MOST_LINES - len(_headed(screen, 0, remarks, width)) + 1
        for rows in range(min(len(screen.lines), max(room, fewest)), fewest - 1, -1):
            laid_out = _headed(screen, rows, remarks, width)
            if len(laid_out) <= MOST_LINES:
                return laid_out
    return laid_out[:MOST_LINES]


def _headed(screen: Screen, rows: int, remarks: int, width: int) -> list[str]:
    shown = sorted(range(len(screen.lines)), key=lambda place: screen.lines[place].importance)
    lines = [screen.lines[place] for place in sorted(shown[:rows])]
    left_out = len(screen.lines) - rows
    more = f"{left_out} more {'row is' if left_out == 1 else 'rows are'} in {screen.rest}."
    blocks = [
        _filled([screen.title, *screen.verdict], width),
        [*_table(screen.heads, lines, width), *([more] if left_out else [])]
        if screen.lines
        else [],
        _filled([*screen.remarks[:remarks], *screen.ending], width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block).split("\n")


def _filled(sentences: Sequence[str], width: int) -> list[str]:
    return [line for sentence in sentences for line in filled(sentence, width)]


def _table(heads: Sequence[str], lines: Sequence[Line], width: int) -> list[str]:
    """With more room between the columns where that breaks no name."""
    wide, narrow = (_with_gaps(heads, lines, gap, width) for gap in (2, 1))
    return narrow if len(narrow) < len(wide) else wide


def _with_gaps(heads: Sequence[str], lines: Sequence[Line], gap: int, width: int) -> list[str]:
    grid = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="")
    for place, head in enumerate(heads):
        grid.add_column(head, overflow="fold", no_wrap=place != NAME)
    for line in lines:
        grid.add_row(*line.cells)
    console = Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(grid)
    return [line.rstrip() for line in captured.get().splitlines()]
