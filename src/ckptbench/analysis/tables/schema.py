"""What a table is: its columns with type, unit and meaning, and the order of its rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

Kind = Literal["text", "integer", "count", "number", "flag", "verdict", "time"]
DTYPES: Mapping[Kind, str] = {
    "text": "object",
    "integer": "int64",
    "count": "Int64",
    "number": "float64",
    "flag": "bool",
    "verdict": "boolean",
    "time": "datetime64[ns, UTC]",
}
"""`count` and `verdict` are the integers and flags that may be missing; a missing `number` is NaN."""

_DTYPES = {kind: pd.api.types.pandas_dtype(name) for kind, name in DTYPES.items()}
"""The types themselves: to look one up by its name takes as long as to convert a short column."""

Row = dict[str, Any]
"""The values of one row of a table, by column."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `unit` is "" for text and flags, "1" for ratios and counts."""

    name: str
    kind: Kind
    unit: str
    meaning: str


def with_ends(name: str, unit: str, meaning: str) -> tuple[Column, Column, Column]:
    """The column of an estimate, and the two columns with the ends of its 95 % interval."""
    return (
        Column(name, "number", unit, meaning),
        Column(f"{name}_lo", "number", unit, "lower end of its interval"),
        Column(f"{name}_hi", "number", unit, "upper end of its interval"),
    )


@dataclass(frozen=True, slots=True)
class Table:
    """One table: `row` says what one row is, `key` names the columns that identify and sort the rows."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def sorted_frame(self, content: Mapping[str, Any] | pd.DataFrame) -> pd.DataFrame:
        """`content`, whose rows are sorted already, with exactly these columns and their types."""
        if not isinstance(content, pd.DataFrame):
            content = pd.DataFrame({name: content[name] for name in self.names}, copy=False)
        typed = {
            column.name: _typed(content[column.name], _DTYPES[column.kind])
            for column in self.columns
        }
        return pd.DataFrame(typed, copy=False)

    def frame(self, content: Mapping[str, Any] | pd.DataFrame) -> pd.DataFrame:
        """`content` with exactly these columns, their types, and rows sorted by the key."""
        frame = self.sorted_frame(content)
        # Sorting takes longer than all else here, and each column of the key its part of that.
        by = [name for name in self.key if len(frame[name].unique()) > 1]
        if not by:
            return frame.reset_index(drop=True)
        return frame.sort_values(by, kind="stable", ignore_index=True)

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """The frame of these rows; of none, an empty frame with all columns."""
        listed = list(rows)
        if not listed:
            return _empty(self.columns).copy()
        return self.frame(pd.DataFrame(listed, columns=self.names))


def _typed(column: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    return column if column.dtype == dtype else column.astype(dtype)


@functools.cache
def _empty(columns: tuple[Column, ...]) -> pd.DataFrame:
    """Of most studies, half of all tables have no row."""
    return pd.DataFrame({each.name: pd.Series(dtype=DTYPES[each.kind]) for each in columns})
