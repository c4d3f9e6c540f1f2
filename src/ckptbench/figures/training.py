"""Loss and test accuracy by epoch, with checkpoints and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ckptbench.cells import NEVER
from ckptbench.figures import labels
from ckptbench.figures.captions import caption
from ckptbench.figures.panels import LINE_IN, PANEL_EDGES_IN, legend, nothing_to_show, paper_figure
from ckptbench.figures.setups import (
    SYSTEM,
    faceted,
    ordered,
    per_framework,
    varying,
    with_hardware,
)
from ckptbench.figures.style import COLUMN_IN, DOTTED, INK, PAGE_IN, SOLID, LineStyle, look

READING = "Lines are means over {pooled}, bands reach from the smallest to the largest of them"
FACET = (*SYSTEM, "ranks")
"""Ranks change the training, as the batch of all ranks together does."""
POOLED = ("repeat", "format", "interval", "strategy")
PANEL_IN = 1.1


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of run, never averaged with another, and its line.

    Curves of different kinds often are the same to the last bit: all must be seen when they coincide.
    """

    name: str
    line_style: LineStyle
    width_points: float
    alpha: float


KINDS = (
    Kind("baseline", SOLID, 3.5, 0.4),
    Kind("with checkpoints", SOLID, 0.8, 1),
    Kind("resumed", DOTTED, 2, 1),
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column, what it is called on its axis, and the factor between the two."""

    column: str
    label: str
    scale: float


QUANTITIES = (
    Quantity("training_loss", "Training loss", 1),
    Quantity("test_accuracy", "Test accuracy (%)", 100),
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `training` and `provenance`."""
    shown = tables["training"]
    if shown.empty:
        text = caption(shown, tables["provenance"], "")
        return nothing_to_show("No run trained an epoch: there is no curve to show.", text)
    rows = _prepared(shown)
    text = caption(rows, tables["provenance"], _reading(rows), FACET)
    facets = list(rows["facet"].unique())
    pairs_across = 1 if len(facets) == 1 else 2
    lines = -(-len(facets) // pairs_across)
    width_in = COLUMN_IN if pairs_across == 1 else PAGE_IN
    figure = paper_figure(width_in, lines * (PANEL_IN + 2 * PANEL_EDGES_IN) + 3 * LINE_IN, text)
    grid = figure.add_gridspec(lines, pairs_across * len(QUANTITIES))
    first: dict[Quantity, Axes] = {}
    for place, facet in enumerate(facets):
        line, pair = divmod(place, pairs_across)
        for part, quantity in enumerate(QUANTITIES):
            spot = grid[line, pair * len(QUANTITIES) + part]
            axes = figure.add_subplot(spot, sharey=first.get(quantity))
            first.setdefault(quantity, axes)
            _draw_panel(axes, rows[rows["facet"] == facet], quantity)
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
    names = ["repeat", *(name for name in varying(with_checkpoints, POOLED) if name != "repeat")]
    *most, last = [f"{name.removesuffix('y')}s" for name in names]
    return READING.format(pooled=f"{', '.join(most)} and {last}" if most else last)


def _draw_panel(axes: Axes, facet: pd.DataFrame, quantity: Quantity) -> None:
    known = facet[facet[quantity.column].notna()]
    for framework, kind, rows in _curves(known):
        color, marker = look(framework).color, look(framework).marker
        curve = quantity.scale * rows.groupby("epoch")[quantity.column].agg(["mean", "min", "max"])
        done = curve.index + 1
        axes.fill_between(done, curve["min"], curve["max"], color=color, alpha=0.15, linewidth=0)
        axes.plot(
            done,
            curve["mean"],
            color=color,
            marker=marker,
            linestyle=kind.line_style,
            linewidth=kind.width_points,
            alpha=kind.alpha,
            markevery=max(1, len(curve) // 6),
            gid=kind.name,
        )
    if known.empty:
        axes.text(0.5, 0.5, "not evaluated", transform=axes.transAxes, ha="center")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    axes.set_xlabel("Epoch")
    axes.set_ylabel(quantity.label)


def _curves(rows: pd.DataFrame) -> Iterator[tuple[str, Kind, pd.DataFrame]]:
    for framework, own in per_framework(rows):
        for kind in KINDS:
            curve = own[own["kind"] == kind.name]
            if len(curve):
                yield framework, kind, curve


def _legend(rows: pd.DataFrame) -> list[list[Line2D]]:
    frameworks = [
        Line2D([], [], color=look(f).color, marker=look(f).marker, label=labels.name(f))
        for f, _ in per_framework(rows)
    ]
    present = set(rows["kind"])
    kinds = [
        Line2D(
            [],
            [],
            color=INK,
            linestyle=kind.line_style,
            linewidth=kind.width_points,
            alpha=kind.alpha,
            label=kind.name,
        )
        for kind in KINDS
        if kind.name in present
    ]
    return [frameworks, kinds]
