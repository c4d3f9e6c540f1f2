"""Curves of a panel: what tells them apart, and which go into a panel of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ckptbench.report.answer.setups import SEPARATOR, in_words, separating


def in_series(
    rows: pd.DataFrame, panels: Sequence[str], series: Sequence[str], most: int
) -> pd.DataFrame:
    """The rows with `title`, which panel they are in, and `series`, which curve.

    A panel is one framework in one value of each of `panels`. Where it would hold more than `most` curves, the last of the columns of `series` separate
    panels too.
    """
    inside = [name for name in series if varies_within(rows, name)]
    apart: list[str] = []
    while inside and _most_curves(rows, ["framework", *panels, *apart], inside) > most:
        apart.append(inside.pop())
    names = ["framework", *separating(rows, (*panels, *apart))]
    return rows.assign(
        title=in_words(rows, names, SEPARATOR),
        series=in_words(rows, inside or [series[0]], ", "),
    )


def _most_curves(rows: pd.DataFrame, panel: Sequence[str], inside: Sequence[str]) -> int:
    curves = rows.drop_duplicates([*panel, *inside])
    return int(curves.groupby(list(panel)).size().max())


def varies_within(rows: pd.DataFrame, column: str) -> bool:
    """Whether a framework has several values, or of formats a strategy of it: those of others do not tell two curves apart."""
    within = ["framework", "strategy"] if column == "format" else ["framework"]
    return bool((rows.groupby(within)[column].nunique() > 1).any())
