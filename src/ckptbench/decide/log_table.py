"""A log as a table of text: with commas, with | as `sacct --parsable2` prints it, or in columns over a line of dashes, as `sacct` does."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ckptbench.common.errors import DataError
from ckptbench.common.files import read_regular
from ckptbench.common.remedies import blame
from ckptbench.decide.clock import seconds_of
from ckptbench.matrix.shown import show

SEPARATORS = ",;\t"
OTHER_SCHEDULERS = re.compile(
    r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];|=={9,}|qname\s|(?:[^:;{]*:){30}"
)
"""Of PBS's accounting log; of what qacct prints, and of the file that it reads."""
CORRECT = "correct `log`, which is a path from the folder of its YAML file"
ALIASES = {"jobidraw": "jobid", "elapsedraw": "elapsed"}
"""Columns that say the same."""
MOST_UNREADABLE = 0.1
"""Of the rows: with more than this part, the table is not what it is taken for."""


@dataclass(slots=True)
class LogTable:
    """The rows of a log, some of which may turn out to be unreadable."""

    path: Path
    first: int
    """The number of the line of names."""
    names: list[str]
    rows: pd.DataFrame
    """Texts, by the numbers of their lines. Names of columns have no capitals."""
    faults: dict[int, str] = field(default_factory=dict)
    """What is wrong with an unreadable row."""

    def has(self, name: str) -> bool:
        return _known(name) in self.rows

    def text(self, name: str) -> pd.Series[str]:
        """The cells of a column; empty ones where it is missing."""
        return self.rows.get(_known(name), pd.Series("", self.rows.index, dtype=object))

    def seconds(self, name: str, where: pd.Series[bool]) -> pd.Series[float]:
        """The times of a column, in the rows `where` they are needed; NaN elsewhere and where they cannot be read."""
        texts, found = self.text(name)[where], []
        for line, text in zip(texts.index.tolist(), texts, strict=True):
            try:
                found.append(seconds_of(text))
            except ValueError as error:
                found.append(math.nan)
                self.faults.setdefault(line, f"{name} is {show(text)}: {error}")
        return pd.Series(found, texts.index, dtype=float).reindex(self.rows.index)

    def fault(self, wrong: pd.Series[bool], name: str, words: str) -> None:
        """These rows are unreadable, for what the column `name` says."""
        texts = self.text(name)[wrong]
        for line, text in zip(texts.index.tolist(), texts, strict=True):
            self.faults.setdefault(line, f"{name} is {show(text)}: {words}")

    @property
    def readable(self) -> pd.Series[bool]:
        return ~self.rows.index.to_series().isin(self.faults)

    def doubts(self) -> tuple[str, ...]:
        """A sentence on the unreadable rows, if there are some. Raises DataError where they are many."""
        faults = {line: self.faults[line] for line in self.rows.index if line in self.faults}
        if not faults:
            return ()
        first, number, of = min(faults), len(faults), len(self.rows)
        words = f"line {first}: {faults[first]}"
        if number > MOST_UNREADABLE * of:
            raise DataError(f"{self.path}: {words}" + f" ({number:,} of {of:,} rows cannot be read)" * (number > 1))  # fmt: skip
        return (f"{number:,} of {of:,} rows cannot be read and do not count; the first is {words}",)


def _known(name: str) -> str:
    return ALIASES.get(name.lower(), name.lower())


def read_table(path: Path, column: str, remedy: str = CORRECT) -> LogTable:
    """Without empty lines, lines that begin with #, a command line before the table, and names that are repeated where files were joined. `column` is that of a
    list without names, `remedy` what to do about a file that cannot be read.

    Raises DataError where it cannot be read or is empty.
    """
    try:
        lines = _without_command(read_regular(path).decode("utf-8-sig").splitlines())
        rows = {number: cells for number, cells in _cells(lines) if any(cells) and cells[0][:1] != "#"}  # fmt: skip
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {blame(error, path, remedy, reading=True)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: cannot be read as CSV in UTF-8: {error}; correct it, or {remedy}"
        ) from None
    if not rows:
        raise DataError(f"{path}: it is empty: begin it with a line of names")
    first, names = next(iter(rows.items()))
    if OTHER_SCHEDULERS.match(lines[first - 1]):
        raise DataError(
            f"{path}: line {first}: these are records of PBS or Grid Engine: write the times of the failures among them into a list, as "
            'docs/failure-rates.md says below "PBS and Grid Engine"'
        )
    if len(names) == 1 and _known(names[0]) != _known(column) and re.search(r"\d", names[0]):
        names = [column]
    else:
        rows = {line: cells for line, cells in rows.items() if line != first and (cells != names or len(names) == 1)}  # fmt: skip
    width = len(names)
    padded = [(cells + [""] * width)[:width] for cells in rows.values()]
    frame = pd.DataFrame(padded, [*rows], [*map(_known, names)], dtype=object)
    table = LogTable(path, first, names, frame.loc[:, ~frame.columns.duplicated()])
    if table.has("State"):
        wrong = {line: len(cells) for line, cells in rows.items() if len(cells) < width or any(cells[width:])}  # fmt: skip
        how = "complete it, or leave out a column in which a cell holds a separator"
        if table.has("AllocTRES") and "|" not in lines[first - 1]:
            how = "AllocTRES has commas: print the jobs with --parsable2"
        table.faults = {line: f"it has {number} columns for {width} names: {how}" for line, number in wrong.items()}  # fmt: skip
    return table


def _without_command(lines: list[str]) -> list[str]:
    """With the line of the shell left empty that was copied with sacct's table."""
    is_command = lines and re.match(r"(.*[$%>#]\s+)?sacct\s", lines[0])
    return ["", *lines[1:]] if is_command else lines


def _cells(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Of each line, by its number."""
    rules = [line for line in lines if re.fullmatch(r"-{3,}[- ]*", line)]
    if rules:
        spans = [match.span() for match in re.finditer("-+", rules[0])]
        for number, line in enumerate(lines, 1):
            yield number, [line[begin:end].strip() for begin, end in spans if line not in rules]
        return
    head = next((line for line in lines if line.strip() and line[0] != "#"), "")
    separator = "|" if "|" in head else max(SEPARATORS, key=head.count)
    # sacct quotes nothing
    reader = csv.reader(lines, delimiter=separator, quotechar=None if separator == "|" else '"')
    for row in reader:
        yield reader.line_num, [cell.strip() for cell in row]
