"""A log as a table of text, with commas or, as `sacct --parsable2` prints it, with |."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ckptbench.common.errors import DataError
from ckptbench.common.files import read_regular
from ckptbench.common.remedies import blame
from ckptbench.decide.clock import seconds_of
from ckptbench.matrix.shown import show

SEPARATORS = ",;\t"
SHOWN_NAMES = 5
CORRECT = "correct `log`, which is a path from the folder of its YAML file"


ALIASES = {"jobidraw": "jobid", "elapsedraw": "elapsed"}
"""Columns that say the same."""


@dataclass(frozen=True, slots=True)
class LogTable:
    """The names of the columns, in the first line, and the cells of the others."""

    path: Path
    first: int
    """The number of the first line."""
    names: tuple[str, ...]
    rows: pd.Series[list[str]]
    """The cells of each line, by its number."""

    def named(self) -> str:
        """The names, as an error shows them."""
        shown = ", ".join(map(show, self.names[:SHOWN_NAMES]))
        more = len(self.names) - SHOWN_NAMES
        return f"{shown} and {more} more" if more > 0 else shown

    def has(self, name: str) -> bool:
        return _known(name) in map(_known, self.names)

    def column(self, name: str) -> pd.Series[str]:
        """Its cells; empty ones where it is missing."""
        if not self.has(name):
            return self.rows.map(lambda row: "")
        place = [*map(_known, self.names)].index(_known(name))
        return self.rows.map(lambda row: row[place] if place < len(row) else "")

    def seconds(self, name: str, where: pd.Series[bool] | None = None) -> pd.Series[float]:
        """The times of a column, in the lines `where` they are needed. Raises DataError for the first that is none."""
        texts = self.column(name)
        found = {}
        for line, text in (texts if where is None else texts[where]).items():
            try:
                found[line] = seconds_of(text)
            except ValueError as error:
                raise self.error(line, f"{name} is {show(text)}: {error}") from None
        return pd.Series(found, dtype=float)

    def refuse(self, wrong: pd.Series[bool], name: str, words: str) -> None:
        """Raises DataError for the first of these lines, with the cell of the column `name`."""
        if wrong.any():
            line = wrong[wrong].index[0]
            raise self.error(line, f"{name} is {show(self.column(name)[line])}: {words}")

    def error(self, line: object, words: str) -> DataError:
        return DataError(f"{self.path}: line {line}: {words}")

    def without_names(self, name: str) -> LogTable:
        """The same with one column of this name, where the first line is a row too."""
        first = pd.Series({self.first: list(self.names)})
        return replace(self, names=(name,), rows=pd.concat([first, self.rows]))

    def only(self, kept: pd.Series[bool]) -> LogTable:
        return replace(self, rows=self.rows[kept])


def _known(name: str) -> str:
    """Whatever its capitals."""
    return ALIASES.get(name.lower(), name.lower())


def read_table(path: Path) -> LogTable:
    """Without empty lines, lines that begin with #, and names that are repeated where files were joined.

    Raises DataError where it cannot be read or is empty.
    """
    rows: dict[int, list[str]] = {}
    names: list[str] | None = None
    first = 0
    try:
        text = read_regular(path).decode("utf-8-sig")
        head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
        separator = "|" if "|" in head else max(SEPARATORS, key=head.count)
        quote = None if separator == "|" else '"'  # sacct quotes nothing
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote)
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if names is None:
                first, names = reader.line_num, cells
            elif len(cells) == 1 or cells != names:
                rows[reader.line_num] = cells
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {blame(error, path, CORRECT, reading=True)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: cannot be read as CSV in UTF-8: {error}; correct it, or {CORRECT}"
        ) from None
    if names is None:
        raise DataError(f"{path}: it is empty: begin it with a line of names")
    return LogTable(path, first, tuple(names), pd.Series(rows, dtype=object))
