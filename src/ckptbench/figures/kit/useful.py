"""The axis of a goodput: to 100 %, or further where fewer ranks were faster than the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ckptbench.figures.kit.ticks import reach

BEYOND = "; the grey line is 100 %: as fast as the baseline"
CUT = ", and an interval that reaches the edge goes on beyond it"


def farthest_of(rows: pd.DataFrame, quantities: Sequence[str]) -> float:
    """How far the axis of these columns of the table must reach, in percent."""
    ends = [f"{name}_hi" for name in quantities]
    values, highest = (100 * rows[names].to_numpy(float) for names in ([*quantities], ends))
    return reach(values.flat, highest.flat)


def beyond(rows: pd.DataFrame, quantities: Sequence[str]) -> str:
    """What a caption says of an axis that reaches so far; nothing where it ends at 100 %."""
    farthest = farthest_of(rows, quantities)
    cut = (100 * rows[[f"{name}_hi" for name in quantities]] > farthest).any(axis=None)
    return f"{BEYOND}{CUT if cut else ''}" if farthest > 100 else ""
