"""A log of failures: a CSV file with the time of each, and the gaps between them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide.log_faults import Faults, in_form, likely_forms, rewritten
from ckptbench.decide.moments import HELP, Moment, moment
from ckptbench.errors import DataError
from ckptbench.machine.files import read_regular
from ckptbench.matrix.shown import show
from ckptbench.remedies import blame

Floats = NDArray[np.float64]

COLUMN = "time"
"""The column of the times, where the YAML file names no other."""
MOST_FAILURES = 100_000
"""More than any machine has had."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """The times between the failures of one system."""

    hours: Floats
    """Shape (failures,), each above 0. The first gap is from the begin of the observation to the first failure."""
    unended_hours: float
    """From the last failure to the end of the observation. This gap is only known to be longer."""

    @property
    def failures(self) -> int:
        return len(self.hours)

    @property
    def observed_hours(self) -> float:
        return float(self.hours.sum()) + self.unended_hours


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the log."""

    number: int
    text: str
    at: Moment | None
    """None where the time cannot be read."""


def read_gaps(path: Path, column: str, begin: Moment, end: Moment) -> Gaps:
    """The gaps of a log that was kept from `begin` to `end`.

    The file has a line of column names and then a line for each failure, in the order of time. Empty lines, and lines that begin with #,
    are skipped. Other columns are not read. Raises DataError with a line for each kind of fault: where it is first, what to do, and where
    else it is.
    """
    faults = Faults(str(path))
    broken = ""
    lines: list[_Line] = []
    try:
        for number, text in _cells(path, column, faults):
            lines.append(_Line(number, text, _moment(text)))
            if len(lines) > MOST_FAILURES:
                words = f"a log has at most {MOST_FAILURES:,} failures: shorten it"
                faults.add("many", number, f"{column} is {show(text)}: {words}")
                break
    except DataError as error:  # what comes after it cannot be read
        broken = str(error)
    _check_times(lines, column, begin, end, faults)
    if text := "\n".join(filter(None, (faults.text(), broken))):
        raise DataError(text)
    if not lines:
        raise DataError(
            f"{path}: it has no failure, so it gives no rate: give a longer log, or a number by mean_gpu_hours"
        )
    seconds = [begin.seconds, *(line.at.seconds for line in lines if line.at is not None)]
    unended = (end.seconds - seconds[-1]) / SECONDS_PER_HOUR
    return Gaps(np.diff(np.array(seconds)) / SECONDS_PER_HOUR, unended)


def _moment(text: str) -> Moment | None:
    try:
        return moment(text)
    except ValueError:
        return None


def _check_times(
    lines: list[_Line], column: str, begin: Moment, end: Moment, faults: Faults
) -> None:
    """Add what is wrong with the times. Those in a form that cannot be read are checked too, in the form that fits best."""
    unread = [line.text for line in lines if line.at is None]
    forms = likely_forms(unread)
    for line in lines:
        if line.at is None:
            words = f"{column} is {show(line.text)}: {HELP}{rewritten(line.text, forms)}"
            faults.add("form", line.number, words)
    found: list[Faults] = []
    for form in forms or [""]:
        found.append(Faults(faults.path))
        _check_order(
            [
                replace(line, at=line.at or in_form(line.text, form)) if form else line
                for line in lines
            ],
            (column, begin, end),
            found[-1],
        )
    best = min(found, key=lambda each: each.count)  # day and month may stand in either order
    faults.first |= best.first
    faults.lines |= best.lines


def _check_order(lines: list[_Line], asked: tuple[str, Moment, Moment], faults: Faults) -> None:
    column, begin, end = asked
    before = begin
    seen: dict[tuple[str, float] | str, int] = {}
    for line in lines:
        where = f"{column} is {show(line.text)}"
        at = line.at
        same = (at.clock, at.seconds) if at is not None else line.text.strip()
        if same in seen:
            faults.add(
                "twice",
                line.number,
                f"{where}: line {seen[same]} has the same time: "
                "what fails at the same time is one failure, so remove one of the lines",
            )
        first = seen.setdefault(same, line.number) == line.number
        if at is None:
            continue
        if at.clock != begin.clock:
            faults.add(
                "clock",
                line.number,
                f"{where}: it is {at.clock}, but `from` is {begin.clock}: write all times in the same way",
            )
        elif not begin.seconds < at.seconds <= end.seconds:
            faults.add(
                "range",
                line.number,
                f"{where}: the log was kept from {begin.written} to {end.written}: "
                "remove the line, or correct `from` and `to`",
            )
            continue
        if first and at.clock == before.clock and at.seconds < before.seconds:
            faults.add(
                "order",
                line.number,
                f"{where}: the line before has {before.written}: sort the lines by time",
            )
        before = at


def _cells(path: Path, column: str, faults: Faults) -> Iterator[tuple[int, str]]:
    """The number of each line, from 1, and what it has in the column. Raises DataError where the file has no such column."""
    place: int | None = None
    for number, row in _rows(path):
        if place is None:
            names = [name.strip() for name in row]
            if column not in names:
                raise DataError(
                    f"{path}: line {number}: there is no column {show(column)} among {', '.join(map(show, names))}: "
                    "name the column of the times by `column`, and begin the file with a line of names"
                )
            place = names.index(column)
        elif place < len(row):
            yield number, row[place]
        else:
            faults.add(
                "short", number, f"it has no column {show(column)}: complete or remove the line"
            )


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        text = read_regular(path).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""))
        for row in reader:
            if any(cell.strip() for cell in row) and not row[0].startswith("#"):
                yield reader.line_num, row
    except OSError as error:
        other = "correct `log`, which is a path from the folder of its YAML file"
        raise DataError(
            f"{path}: cannot be read: {blame(error, path, other, reading=True)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: cannot be read as CSV in UTF-8: {error}; "
            "correct it, or correct `log`, which is a path from the folder of its YAML file"
        ) from None
