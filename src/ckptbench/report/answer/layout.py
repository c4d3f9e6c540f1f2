"""The table of an answer, the same for every way in: `now`, then each strategy with its best interval, what it loses and saves, and what is fine."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from ckptbench.report.answer.cells import ends_of_saving, fine, interval, loss, saving
from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import capitalized
from ckptbench.report.answer.quantities import Unit, plain, unit_of_time

NOW = "now"
LONGEST_NAME, SHORTEST_NAME = 24, 8
"""A longer name is broken: at the latest here, and sooner where numbers need the room."""
NAME_GAP = 2
"""Behind a name."""


NO_BREAK = "\N{NO-BREAK SPACE}"
KEPT_TOGETHER = re.compile(
    r"(?<=\d) (- [\d.,]+ )?(%|s|min|h|days|GPUs?|ranks?)\b|(?<=\d) - (?=\d)|(?<=\d) %|\bMTBF (at least )?(?=\d)"
)


class Kind(Enum):
    """What a line is, for a terminal with colours."""

    TITLE = "title"
    BEST = "best"
    ROW = "row"
    WARNING = "warning"
    ADVICE = "advice"
    NOTE = "note"


class Printed(NamedTuple):
    """A line of an answer."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Strategies that are compared with one another and with one interval in use."""

    choices: tuple[Choice, ...]
    title: str = ""
    """What sets it apart from others. Empty where it is the only one."""
    place: str = ""
    """The same without the cost that may stand behind it."""

    @property
    def rows(self) -> Iterator[tuple[str, Choice]]:
        """All choices with their names, the interval in use first."""
        if (now := self.choices[0].now) is not None:
            of_several = self.title and len(self.choices) > 1
            yield f"{NOW} ({now.shown_name})" if of_several else NOW, now
        yield from ((choice.shown_name, choice) for choice in self.choices)

    @property
    def time(self) -> Unit:
        """The unit of its intervals, if it is the only block."""
        return unit_of_time(self.mean_s)

    @property
    def mean_s(self) -> float:
        """The geometric mean of its best intervals."""
        best_s = [choice.interval_s.value for choice in self.choices]
        return math.exp(sum(map(math.log, best_s)) / len(best_s))

    @property
    def best(self) -> Choice:
        """The choice that loses the least."""
        return min(self.choices, key=lambda choice: choice.loses.value)


FAR_APART = 100.0
"""Blocks whose intervals differ by more than this factor have units of their own."""


def units(blocks: Sequence[Block]) -> list[Unit]:
    """That of each block's intervals: one for all, by their mean."""
    means_s = [block.mean_s for block in blocks]
    if not means_s or max(means_s) > FAR_APART * min(means_s):
        return [block.time for block in blocks]
    return [unit_of_time(math.exp(sum(map(math.log, means_s)) / len(means_s)))] * len(blocks)


class Cells(NamedTuple):
    """A row of the table."""

    name: str
    every: str
    ends: str
    loses: str
    saves: str
    fine: str


@dataclass(frozen=True, slots=True)
class _Fit:
    """How a table is made to fit: the first of `FITS` that does is taken."""

    gap: int = 3
    short: bool = False
    """With `GPU-h/day`."""
    has_fine: bool = True
    """Else fine ranges stand below the table."""
    has_narrow: bool = True
    """Whether narrow intervals of losses and savings are shown."""
    has_unit: bool = True
    """Else the unit of what is saved stands below the table."""
    has_saved_ends: bool = True
    """Else the intervals of what is saved stand below the table."""


_TIGHT = _Fit(gap=2, short=True, has_narrow=False)
FITS = (
    _Fit(), _Fit(gap=2), _Fit(gap=2, short=True), _TIGHT, replace(_TIGHT, has_fine=False, has_narrow=True),
    replace(_TIGHT, has_fine=False), replace(_TIGHT, has_fine=False, has_unit=False),
    replace(_TIGHT, has_fine=False, has_saved_ends=False), replace(_TIGHT, has_fine=False, has_unit=False, has_saved_ends=False),
)  # fmt: skip


def table(blocks: Sequence[Block], width: int, unit: str = "GPU") -> list[Printed]:
    """Lines. No number is broken, also where the width is too small for a row."""
    times = units(blocks)
    for fit in FITS:
        rows = [
            _cells(name, choice, time, fit, in_use=choice is block.choices[0].now)
            for block, time in zip(blocks, times, strict=True)
            for name, choice in block.rows
        ]
        every = _with_unit(rows, unit, fit)
        longest = max(cell_len(row.name) for row in every)
        room = width - _width(every, fit.gap)
        if room >= min(longest, LONGEST_NAME):
            break
    name_width = min(longest, LONGEST_NAME, max(room, SHORTEST_NAME))
    laid_out = _laid_out(every, name_width, fit.gap)
    lines: list[Printed] = []
    for block, time in zip(blocks, times, strict=True):
        below = _below(block, time, fit)
        title = f"{block.title}; {below[0].lower()}{below[1:-1]}" if below and block.title else ""
        if title and cell_len(title) <= width:
            below = ""
        else:
            title = block.title
        lines += [Printed(line, Kind.TITLE) for line in filled(title, width)]
        for _, choice in block.rows:
            is_best = choice is block.best and not choice.helps_nothing
            lines += [Printed(line, Kind.BEST if is_best else Kind.ROW) for line in next(laid_out)]
        lines += [Printed(line, Kind.ROW) for line in filled(below, width)]
    if not fit.has_unit and any(row.saves for row in every):
        lines.append(Printed(f"Saved: {unit}-hours a day.", Kind.ROW))
    return lines


PARTS = ("", "loses", "in saves", "lost work", "restarts")
AT_LIMIT = "time limit"
"""A further part, where a job has one."""


def losses(blocks: Sequence[Block]) -> list[str]:
    """What each row loses it to, as a table."""
    known = [block for block in blocks if block.choices[0].losses is not None]
    of_all = [each.losses for block in known for _, each in block.rows if each.losses is not None]
    has_limit = any(each.at_limit > 0 for each in of_all)
    heads = (*PARTS, AT_LIMIT) if has_limit else PARTS
    rows: list[tuple[str, ...]] = [heads] if known else []
    for block in known:
        rows += [(block.title.partition(":")[0], *("",) * (len(heads) - 1))] if block.title else []
        for name, choice in block.rows:
            if (lost := choice.losses) is not None:
                parts = (lost.saves, lost.lost_work, lost.restarts, lost.at_limit)
                shares = parts[: len(heads) - 2]
                rows.append(
                    (name, *(f"{plain(100 * each)} %" for each in (choice.loses.value, *shares)))
                )
    widths = [
        max((cell_len(row[place]) for row in rows if row[1]), default=0)
        for place in range(len(heads))
    ]
    return [
        f"{set_cell_size(name, max(widths[0], cell_len(name)))}"
        + "".join(
            f"{' ' * NAME_GAP}{cell:>{width}}"
            for cell, width in zip(cells, widths[1:], strict=True)
        )
        if any(cells)
        else name
        for name, *cells in rows
    ]


def _below(block: Block, time: Unit, fit: _Fit) -> str:
    """A sentence on what does not fit into rows."""
    parts = [] if fit.has_fine else [("fine", [fine(each, time) for each in block.choices])]
    if not fit.has_saved_ends:
        parts.append(("saved, 95 %", [ends_of_saving(each, with_narrow=fit.has_narrow) for each in block.choices]))  # fmt: skip
    said = [
        f"{name}: {', '.join(text + f' ({each.shown_name})' * (len(block.choices) > 1) for text, each in zip(texts, block.choices, strict=True) if text)}"
        for name, texts in parts
        if any(texts)
    ]
    return f"{capitalized('; '.join(said))}." if said else ""


def _cells(name: str, choice: Choice, time: Unit, fit: _Fit, *, in_use: bool) -> Cells:
    range_of = fine(choice, time) if fit.has_fine else ""
    return Cells(
        name,
        *interval(choice, time, in_use=in_use),
        f"loses {loss(choice, with_narrow=fit.has_narrow)}",
        saving(choice, with_narrow=fit.has_narrow, with_ends=fit.has_saved_ends),
        f"(fine: {range_of})" if range_of else "",
    )


def _with_unit(rows: Sequence[Cells], unit: str, fit: _Fit) -> list[Cells]:
    """The unit of what is saved is said once."""
    if not fit.has_unit:
        return [*rows]
    said = f" {unit}-h/day" if fit.short else f" {unit}-hours a day"
    first = next((place for place, row in enumerate(rows) if row.saves), None)
    return [
        row._replace(saves=row.saves + said) if place == first else row
        for place, row in enumerate(rows)
    ]


def _widths(rows: Sequence[Cells]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _width(rows: Sequence[Cells], gap: int) -> int:
    """Of all columns but the names, with the gaps before them. That before the ends of an interval is one."""
    _, every, ends, *others = _widths(rows)
    return NAME_GAP + every + (1 + ends if ends else 0) + sum(gap + each for each in others if each)


def _laid_out(rows: Sequence[Cells], name_width: int, gap: int) -> Iterator[list[str]]:
    """The lines of each row: more than one where its name is broken."""
    _, every, ends, loses, saves, _ = _widths(rows)
    space = " " * gap
    for row in rows:
        cells = [
            f"{row.every:>{every}}" + (f" {row.ends:<{ends}}" if ends else ""),
            f"{row.loses:<{loses}}",
            *([f"{row.saves:<{saves}}"] if saves else []),
            row.fine,
        ]
        parts = _broken(row.name, name_width)
        yield [
            f"{set_cell_size(part, name_width)}{' ' * NAME_GAP}{rest}".rstrip()
            for part, rest in zip_longest(parts, [space.join(cells)], fillvalue="")
        ]


def _broken(name: str, width: int) -> list[str]:
    if cell_len(name) == len(name):
        return textwrap.wrap(name, width) or [""]
    return chop_cells(name, width)


def filled(text: str, width: int) -> list[str]:
    """The text in lines, of which none ends between a number and its unit or in a range."""
    kept = KEPT_TOGETHER.sub(lambda match: match[0].replace(" ", NO_BREAK), text)
    lines = textwrap.wrap(kept, width, subsequent_indent="  ", break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]
