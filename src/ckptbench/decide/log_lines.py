"""The lines of a log: a table of text, with commas or, as `sacct --parsable2` prints it, with |."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from ckptbench.errors import DataError
from ckptbench.machine.files import read_regular
from ckptbench.matrix.shown import show
from ckptbench.remedies import blame

SEPARATORS = ",;\t"
SHOWN_NAMES = 5
CORRECT = "correct `log`, which is a path from the folder of its YAML file"


@dataclass(frozen=True, slots=True)
class Lines:
    """The names of the columns, in the first line, and the cells of the others."""

    path: Path
    first: int
    """The number of the first line."""
    names: tuple[str, ...]
    cells: list[tuple[int, list[str]]]
    """With the number of each line, from 1."""
    broken: str
    """The error with which they break off. Empty where they do not."""

    def named(self) -> str:
        """The names, as an error shows them."""
        shown = ", ".join(map(show, self.names[:SHOWN_NAMES]))
        more = len(self.names) - SHOWN_NAMES
        return f"{shown} and {more} more" if more > 0 else shown

    def place(self, *names: str) -> int | None:
        """Of the first of these columns that is there, whatever its capitals."""
        small = [name.lower() for name in self.names]
        return next((small.index(each.lower()) for each in names if each.lower() in small), None)


def read_lines(path: Path) -> Lines:
    """Without empty lines, and lines that begin with #. Raises DataError where there are none."""
    broken = ""
    rows: list[tuple[int, list[str]]] = []
    try:
        text = read_regular(path).decode("utf-8-sig")
        head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
        separator = "|" if "|" in head else max(SEPARATORS, key=head.count)
        quote = None if separator == "|" else '"'  # sacct quotes nothing
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote)
        for row in reader:
            if any(cell.strip() for cell in row) and not row[0].startswith("#"):
                stripped = [cell.strip() for cell in row]
                is_names = len(row) > 1 and bool(rows) and stripped == rows[0][1]
                if not is_names:  # else again, where files were joined
                    rows.append((reader.line_num, stripped))
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {blame(error, path, CORRECT, reading=True)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        broken = f"{path}: cannot be read as CSV in UTF-8: {error}; correct it, or {CORRECT}"
    if not rows:
        raise DataError(broken or f"{path}: it is empty: begin it with a line of names")
    (first, names), *cells = rows
    return Lines(path, first, tuple(names), cells, broken)
