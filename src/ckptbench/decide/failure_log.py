"""A log of failures: a CSV file with the time of each, and the gaps between them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide.moments import Moment, moment
from ckptbench.errors import DataError
from ckptbench.machine.files import read_regular
from ckptbench.matrix.shown import show

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


def read_gaps(path: Path, column: str, begin: Moment, end: Moment) -> Gaps:
    """The gaps of a log that was kept from `begin` to `end`.

    The file has a line of column names and then a line for each failure, in the order of time. Empty lines, and lines that begin with #,
    are skipped. Other columns are not read. Raises DataError, with the line and what to do.
    """
    seconds = [begin.seconds]
    before = begin.written
    for number, text in _cells(path, column):
        where = f"{path}: line {number}: {column} is {show(text)}"
        try:
            at = moment(text)
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
        if at.clock != begin.clock:
            raise DataError(
                f"{where}: it is {at.clock}, but `from` is {begin.clock}: write all times in the same way"
            )
        if not begin.seconds < at.seconds <= end.seconds:
            raise DataError(
                f"{where}: the log was kept from {begin.written} to {end.written}: "
                "remove the line, or correct `from` and `to`"
            )
        if at.seconds < seconds[-1]:
            raise DataError(f"{where}: the line before has {before}: sort the lines by time")
        if at.seconds == seconds[-1]:
            raise DataError(
                f"{where}: the line before has the same time: "
                "what fails at the same time is one failure, so remove one of the lines"
            )
        seconds.append(at.seconds)
        before = at.written
        if len(seconds) > MOST_FAILURES + 1:
            raise DataError(f"{where}: a log has at most {MOST_FAILURES:,} failures: shorten it")
    if len(seconds) == 1:
        raise DataError(
            f"{path}: it has no failure, so it gives no rate: give a longer log, or a number by mean_gpu_hours"
        )
    unended = (end.seconds - seconds[-1]) / SECONDS_PER_HOUR
    return Gaps(np.diff(np.array(seconds)) / SECONDS_PER_HOUR, unended)


def _cells(path: Path, column: str) -> Iterator[tuple[int, str]]:
    """The number of each line, from 1, and what it has in the column."""
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
            raise DataError(
                f"{path}: line {number}: it has no column {show(column)}: complete or remove the line"
            )


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        text = read_regular(path).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""))
        for row in reader:
            if any(cell.strip() for cell in row) and not row[0].startswith("#"):
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: cannot be read as CSV in UTF-8: {error}; "
            "correct it, or correct `log`, which is a path from the folder of its YAML file"
        ) from None
