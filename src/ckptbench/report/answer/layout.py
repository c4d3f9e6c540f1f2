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

from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.quantities import (
    PERCENT,
    SECONDS,
    Quantity,
    Unit,
    plain,
    saved,
    span,
    unit_of_time,
)

AT_LEAST, AT_MOST = "at least ", "at most "
"""Before numbers from a bound on the failure rate."""
NONE_HELPS = "none helps"
NOW = "now"
LONGEST_NAME, SHORTEST_NAME = 24, 8
"""A longer name is broken: at the latest here, and sooner where numbers need the room."""
SURE = 1.1
"""A 95 % interval that spans less than this factor is not shown: what is fine spans four times as much."""
NAME_GAP = 2
"""Behind a name."""
NARROW = 2.0
"""Where room is short, a loss is shown without its 95 % interval if that spans less than this factor."""
SMALL = 0.1
"""An interval in use is said in steps where it is less of the column's unit."""


NO_BREAK = "\N{NO-BREAK SPACE}"
KEPT_TOGETHER = re.compile(
    r"(?<=\d) (- [\d.,]+ )?(%|s|min|h|days|GPUs?|ranks?)\b|(?<=\d) - (?=\d)|(?<=\d) %"
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

    @property
    def rows(self) -> Iterator[tuple[str, Choice]]:
        """All choices with their names, the interval in use first."""
        if (now := self.choices[0].now) is not None:
            of_several = self.title and len(self.choices) > 1
            yield f"{NOW} ({now.shown_name})" if of_several else NOW, now
        yield from ((choice.shown_name, choice) for choice in self.choices)

    @property
    def time(self) -> Unit:
        """The one unit of all its intervals: that of the best ones' geometric mean."""
        best_s = [choice.interval_s.value for choice in self.choices]
        return unit_of_time(math.exp(sum(map(math.log, best_s)) / len(best_s)))

    @property
    def best(self) -> Choice:
        """The choice that loses the least."""
        return min(self.choices, key=lambda choice: choice.loses.value)


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
    narrow_losses: bool = True
    """Whether narrow intervals of losses are shown."""
    has_unit: bool = True
    """Else the unit of what is saved stands below the table."""


_TIGHT = _Fit(gap=2, short=True, narrow_losses=False)
FITS = (
    _Fit(), _Fit(gap=2), _Fit(gap=2, short=True), _TIGHT, replace(_TIGHT, has_fine=False, narrow_losses=True),
    replace(_TIGHT, has_fine=False), replace(_TIGHT, has_fine=False, has_unit=False),
)  # fmt: skip


def table(blocks: Sequence[Block], width: int, unit: str = "GPU") -> list[Printed]:
    """Lines. No number is broken, also where the width is too small for a row."""
    times = [block.time for block in blocks]
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
        below = "" if fit.has_fine else _fine_of(block, time)
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


PARTS = ("", "loses", "saves", "lost work", "restarts")


def losses(blocks: Sequence[Block]) -> list[str]:
    """What each row loses it to, as a table."""
    known = [block for block in blocks if block.choices[0].losses is not None]
    rows: list[tuple[str, ...]] = [PARTS] if known else []
    for block in known:
        rows += [(block.title.partition(":")[0], "", "", "", "")] if block.title else []
        for name, choice in block.rows:
            if (lost := choice.losses) is not None:
                shares = (lost.saves, lost.lost_work, lost.restarts)
                rows.append(
                    (name, *(f"{plain(100 * each)} %" for each in (choice.loses.value, *shares)))
                )
    widths = [
        max((cell_len(row[place]) for row in rows if row[1]), default=0)
        for place in range(len(PARTS))
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


def _fine_of(block: Block, time: Unit) -> str:
    """A sentence, where fine ranges do not fit into rows."""
    known = [choice for choice in block.choices if choice.has_range]
    ranges = [fine(each, time) + (f" ({each.shown_name})" if len(block.choices) > 1 else "") for each in known]  # fmt: skip
    return f"Fine: {', '.join(ranges)}." if ranges else ""


def told(known: Quantity, unit: Unit) -> tuple[str, str]:
    """The number with its unit, and its 95 % interval: empty where that is unknown or narrow."""
    value, lo, hi = (plain(unit.scale * each) if math.isfinite(each) else "" for each in (known.value, known.lo, known.hi))  # fmt: skip
    is_sure = 0 < known.lo <= known.hi < SURE * known.lo
    ends = f"[{lo}, {hi}]" if lo and hi and not is_sure else ""
    return f"{value} {unit.name}".rstrip(), ends


def interval(choice: Choice, time: Unit, *, in_use: bool) -> tuple[str, str]:
    """How often to save, and the ends of that."""
    if in_use and choice.interval_s.value * time.scale < SMALL:
        return counted(round(choice.steps.value), "step"), ""
    if choice.helps_nothing and not in_use:
        return NONE_HELPS, ""
    value, ends = told(choice.interval_s, time)
    return (f"{AT_LEAST}{value}", "") if choice.is_bound and not in_use else (value, ends)


def loss(choice: Choice, *, with_narrow: bool = True) -> str:
    """What is lost, with its interval."""
    value, ends = told(choice.loses, PERCENT)
    lo, hi = choice.loses.lo, choice.loses.hi
    if not with_narrow and lo > 0 and hi < NARROW * lo:
        ends = ""
    before = AT_LEAST if choice.is_least else AT_MOST if choice.is_bound else ""
    return f"{before}{value} {ends}".rstrip()


def saving(choice: Choice) -> str:
    """`saves 182`, or `costs 182 more`: GPU-hours a day. Empty where there is nothing to compare with."""
    if choice.now is None or choice.saves_gpu_hours is None or choice.helps_nothing:
        return ""
    bound = _saves_at(choice.now.steps.value, choice.steps.value) if choice.is_bound else ""
    saves = saved(choice.saves_gpu_hours)
    return f"costs {bound}{saves[1:]} more" if saves.startswith("-") else f"saves {bound}{saves}"


def fine(choice: Choice, time: Unit) -> str:
    """`21 - 76 min`; empty where it is unknown."""
    if choice.fine_steps is None or not choice.has_range:
        return ""
    step_s = choice.interval_s.value / choice.steps.value
    lo, hi = (steps * step_s for steps in choice.fine_steps)
    return span(lo, hi, time)


def _saves_at(in_use: float, recommended: float) -> str:
    """What stands before what is saved, where failures may be rarer: a longer interval in use then loses less than it seems, a shorter one still
    saves too often."""
    return AT_MOST if in_use > recommended else AT_LEAST


def _cells(name: str, choice: Choice, time: Unit, fit: _Fit, *, in_use: bool) -> Cells:
    range_of = fine(choice, time) if fit.has_fine else ""
    return Cells(
        name,
        *interval(choice, time, in_use=in_use),
        f"loses {loss(choice, with_narrow=fit.narrow_losses)}",
        saving(choice),
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


def stalls(seconds: Sequence[tuple[str, float]]) -> str:
    """`saves stop for 0.31 s (native), 0.02 s (async)`: for how long training is blocked."""
    each = [(name, told(Quantity(stall_s), SECONDS)[0]) for name, stall_s in seconds]
    shown = [f"{value} ({name})" if len(each) > 1 else value for name, value in each]
    return f"saves stop for {', '.join(shown)}"
