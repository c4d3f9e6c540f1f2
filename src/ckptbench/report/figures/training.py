"""Loss and test accuracy by epoch, with checkpoints and without."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.registry import WHOLE
from ckptbench.report.answer.setups import PANEL_COLUMNS, faceted, ordered, with_hardware
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.curves import curve_handles, draw_pairs, framework_handles
from ckptbench.report.figures.kit.panels import PaperFigure, legend, nothing_to_show
from ckptbench.report.figures.kit.style import DOTTED, SOLID

FIGURE = {
    "title": "Loss and accuracy",
    "tables": ("training", "provenance"),
    "needs": "three epochs",
}
READING = (
    "lines are means over repeats, strategies, formats and intervals, bands reach from the smallest to the largest of them. Within the band of the baseline"
    " checkpoints have no visible effect on the training"
)
FACET = (*PANEL_COLUMNS, "ranks")
"""Columns that separate panels. The ranks are one of them: they change the batch of a step, and so the training."""
KINDS = {
    "baseline": {"linestyle": SOLID, "linewidth": 3.5, "alpha": 0.4},
    "with checkpoints": {"linestyle": SOLID, "linewidth": 0.8},
    "resumed": {"linestyle": DOTTED, "linewidth": 2},
}


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `training` and `provenance`."""
    shown = tables["training"][tables["training"]["history"] == WHOLE]
    if shown.empty:
        return nothing_to_show("No run trained an epoch: there is no curve to show.")
    rows = _prepared(shown)
    text = caption(rows, tables["provenance"], READING, FACET)
    groups = [(str(facet), own) for facet, own in rows.groupby("facet", sort=False)]
    figure, _ = draw_pairs(groups, KINDS, text)
    legend(figure, [*framework_handles(rows), *curve_handles(rows, KINDS)])
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    kinds = np.select(
        [shown["attempts"] > 1, shown["interval"] == str(NEVER)],
        ["resumed", "baseline"],
        "with checkpoints",
    )
    known = with_hardware(shown).assign(kind=kinds)
    return faceted(ordered(known, (*FACET, "framework", "epoch")), FACET)
