"""Loss and test accuracy by epoch, with checkpoints and without."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.answer import labels
from ckptbench.answer.setups import (
    SYSTEM,
    faceted,
    ordered,
    per_framework,
    varying,
    with_hardware,
)
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.curves import QUANTITIES, Kind, Quantity, draw_curves, kind_handles
from ckptbench.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    legend,
    nothing_to_show,
)
from ckptbench.figures.kit.style import COLUMN_IN, DOTTED, PAGE_IN, SOLID, look
from ckptbench.matrix.catalogue import WHOLE
from ckptbench.matrix.interval import NEVER

READING = (
    "lines are means over {pooled}, bands reach from the smallest to the largest of them. Within the band of the baseline checkpoints have no visible"
    " effect on the training"
)
FACET = (*SYSTEM, "ranks")
"""Columns that separate panels. The ranks are one of them: they change the batch of a step, and so the training."""
POOLED = {
    "repeat": "repeats",
    "format": "formats",
    "interval": "intervals",
    "strategy": "strategies",
}
PANEL_IN = 1.1
KINDS = (
    Kind("baseline", SOLID, 3.5, 0.4),
    Kind("with checkpoints", SOLID, 0.8, 1),
    Kind("resumed", DOTTED, 2, 1),
)


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `training` and `provenance`."""
    shown = tables["training"]
    shown = shown[shown["history"] == WHOLE]
    if shown.empty:
        text = caption(shown, tables["provenance"], "")
        return nothing_to_show("No run trained an epoch: there is no curve to show.", text)
    rows = _prepared(shown)
    text = caption(rows, tables["provenance"], _reading(rows), FACET)
    facets = list(rows["facet"].unique())
    pairs_across = 1 if len(facets) == 1 else 2
    lines = -(-len(facets) // pairs_across)
    width_in = COLUMN_IN if pairs_across == 1 else PAGE_IN
    figure = PaperFigure(width_in, lines * (PANEL_IN + 2 * PANEL_EDGES_IN) + 3 * LINE_IN, text)
    grid = figure.add_gridspec(lines, pairs_across * len(QUANTITIES))
    first: dict[Quantity, Axes] = {}
    for place, facet in enumerate(facets):
        line, pair = divmod(place, pairs_across)
        for part, quantity in enumerate(QUANTITIES):
            spot = grid[line, pair * len(QUANTITIES) + part]
            axes = figure.add_subplot(spot, sharey=first.get(quantity))
            first.setdefault(quantity, axes)
            draw_curves(axes, rows[rows["facet"] == facet], quantity, KINDS)
            axes.set_xlabel("Epoch")
            if part == 0:
                axes.set_title(facet)
    legend(figure, *_legend(rows))
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    kinds = np.select(
        [shown["attempts"] > 1, shown["interval"] == str(NEVER)],
        ["resumed", "baseline"],
        "with checkpoints",
    )
    known = with_hardware(shown).assign(kind=kinds)
    return faceted(ordered(known, (*FACET, "framework", "epoch")), FACET)


def _reading(rows: pd.DataFrame) -> str:
    with_checkpoints = rows[rows["kind"] == "with checkpoints"]
    found = {"repeat", *varying(with_checkpoints, list(POOLED))}
    *most, last = [words for name, words in POOLED.items() if name in found]
    return READING.format(pooled=f"{', '.join(most)} and {last}" if most else last)


def _legend(rows: pd.DataFrame) -> list[list[Line2D]]:
    frameworks = [
        Line2D([], [], color=look(f).color, marker=look(f).marker, label=labels.name(f))
        for f, _ in per_framework(rows)
    ]
    return [frameworks, kind_handles(rows, KINDS)]
