"""Rows that share something, with what they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd


def groups(
    frame: pd.DataFrame, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows by equal values of `names`, in the order of these values; missing values are equal too."""
    for key, group in frame.groupby(list(names), dropna=False):
        values = key if isinstance(key, tuple) else (key,)
        yield dict(zip(names, values, strict=True)), group


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, each by the names of the columns."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def by_run(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(key["run"]): rows for key, rows in groups(frame, ["run"])}
