"""Which rows of a table come from runs that other programs, or the host of a virtual machine, disturbed."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.tables.columns import SETUP, SYSTEM
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.registry import WHOLE

MARK = "\N{DAGGER}"
DISTURBED = "disturbed"
WORDS = f"{MARK} other programs, or the host of the virtual machine, disturbed a run behind this point (table machine): do not quote it"
"""For a caption."""


def with_disturbed(
    rows: pd.DataFrame, tables: Mapping[str, pd.DataFrame], *, paired: bool = False
) -> pd.DataFrame:
    """Add the flag `disturbed`: the row's run, or any run of its setup, was disturbed.

    With `paired`, also any of its baselines. If there is no column `interval`, the rows are baselines.
    """
    known = tables["runs"].merge(tables["machine"][["run", DISTURBED]], on="run")
    runs = known[known[DISTURBED].fillna(False).astype(bool)]
    baselines = runs[(runs["interval"] == str(NEVER)) & (runs["history"] == WHOLE)]
    if "run" in rows:
        found = rows["run"].isin(runs["run"])
    else:
        found = _is_in(rows, runs if "interval" in rows else baselines, SETUP)
    return rows.assign(disturbed=found | (_is_in(rows, baselines, SYSTEM) & paired))


def _is_in(rows: pd.DataFrame, others: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    """Whether any of the others is equal to the row in those of the columns that it has."""
    known = [column for column in columns if column in rows]
    equal = set(others[known].itertuples(index=False, name=None))
    own = rows[known].itertuples(index=False, name=None)
    return pd.Series([row in equal for row in own], rows.index, dtype=bool)


def any_disturbed(rows: pd.DataFrame) -> bool:
    """Whether a row is marked. Rows without the flag are not timed."""
    return DISTURBED in rows and bool(rows[DISTURBED].any())
