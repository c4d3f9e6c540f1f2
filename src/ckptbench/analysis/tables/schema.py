"""What a table is: its columns with type, unit and meaning, and the order of its rows."""

from __future__ import annotations

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

Row = dict[str, Any]
"""The values of one row of a table, by column."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `unit` is "" for text and flags, "1" for ratios and counts."""

    name: str
    kind: Kind
    unit: str
    meaning: str


def with_ends(
    name: str, unit: str, meaning: str, kind: Kind = "number"
) -> tuple[Column, Column, Column]:
    """The column of an estimate, and the two columns with the ends of its 95 % interval."""
    return (
        Column(name, kind, unit, meaning),
        Column(f"{name}_lo", kind, unit, "lower end of its interval"),
        Column(f"{name}_hi", kind, unit, "upper end of its interval"),
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
        frame = pd.DataFrame({name: content[name] for name in self.names}, copy=False)
        types = {column.name: DTYPES[column.kind] for column in self.columns}
        return frame.astype(
            {name: type for name, type in types.items() if frame[name].dtype != type}
        )

    def frame(self, content: Mapping[str, Any] | pd.DataFrame) -> pd.DataFrame:
        """`content` with exactly these columns, their types, and rows sorted by the key."""
        frame = self.sorted_frame(content)
        return frame.sort_values(list(self.key), kind="stable", ignore_index=True)

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
        """The frame of these rows; of none, an empty frame with all columns."""
        return self.frame(pd.DataFrame(list(rows), columns=self.names))
