"""Rows that share something, with what they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.matrix.registry import HISTORIES, KILLED, RESTART, WHOLE


def groups(
    frame: pd.DataFrame, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows by equal values of `names`, in the order of these values; missing values are equal too."""
    for key, group in frame.groupby(list(names), dropna=False):
        values = key if isinstance(key, tuple) else (key,)
        yield dict(zip(names, values, strict=True)), group


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, each by the names of the columns."""
    # Column by column: of a wide table with few rows pandas' own `to_dict` takes three times as long.
    names = [str(name) for name in frame]
    columns = [_natives(values) for _, values in frame.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _natives(values: pd.Series[Any]) -> list[Any]:
    """The values as Python's own numbers, flags and texts; missing ones of a `count` or `verdict` are None."""
    listed = values.tolist()
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
        return listed
    return [*map(_native, listed)]


def _native(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else None if value is pd.NA else value


def row_by(frame: pd.DataFrame, names: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The only row of each combination of values of `names`."""
    return {tuple(row[name] for name in names): row for row in records(frame)}


def by_run(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(key["run"]): rows for key, rows in groups(frame, ["run"])}


def struck(runs: pd.DataFrame) -> pd.Series[bool]:
    """Of each row of the table `runs`, whether failures struck it whose cost counts: not those of a resume proof."""
    return ~runs["history"].isin((*HISTORIES, *KILLED))


def of_first_recovery(baselines: pd.DataFrame) -> pd.DataFrame:
    """Of the baselines of each system those with `restart`, or else with the first recovery by name.

    An elastic recovery costs something where nothing fails too, so baselines of two recoveries are no repeats of one another.
    """
    if baselines.empty:
        return baselines
    order = baselines["recovery"].where(baselines["recovery"] != RESTART.name, "")
    first = order.groupby([baselines[name] for name in SYSTEM]).transform("min")
    return baselines[order == first]


def continued(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table `runs` that no kill was planned for, and that were interrupted and continued: their times count
    for nothing.
    """
    return runs[~runs["timing_valid"] & (runs["history"] == WHOLE)]
