"""Loss and accuracy, or perplexity, by epoch: a pair of panels for each group of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ckptbench.report.answer import labels
from ckptbench.report.answer.setups import per_framework
from ckptbench.report.figures.kit.panels import PaperFigure, entry, small_multiples
from ckptbench.report.figures.kit.style import look

Kinds = Mapping[str, Mapping[str, Any]]
"""Sorts of runs, which are never averaged with one another, each with its line. Curves of different kinds often are the same to the last bit: all must be
seen when they coincide."""
MARKERS = 6
"""About how many markers a line gets."""
QUANTITIES = {
    "training_loss": ("Training loss", 1),
    "test_accuracy": ("Test accuracy (%)", 100),
    "test_perplexity": ("Test perplexity", 1),
}
"""Columns, each with the name of its axis and the factor between the two."""
PANEL_IN = 1.1


def draw_pairs(
    groups: Sequence[tuple[str, pd.DataFrame]], kinds: Kinds, caption: str
) -> tuple[PaperFigure, list[Axes]]:
    """Two panels for each title and its rows, loss and accuracy or, of text, perplexity, with a mean line and a band from the smallest to the largest for each framework and `kind`."""
    titles = [text for title, _ in groups for text in (title, "")]
    across = 2 if len(groups) % 2 else 4  # both panels of a pair are in one line
    figure, panels = small_multiples(titles, PANEL_IN, caption, across=across)
    first: dict[str, Axes] = {}
    for place, axes in enumerate(panels):
        _, rows = groups[place // 2]
        quantity = _quality(rows) if place % 2 else "training_loss"
        _draw(axes, rows, quantity, kinds)
        if first.setdefault(quantity, axes) is not axes:
            axes.sharey(first[quantity])
    return figure, panels


def _quality(rows: pd.DataFrame) -> str:
    return "test_perplexity" if rows["test_perplexity"].notna().any() else "test_accuracy"


def _draw(axes: Axes, rows: pd.DataFrame, quantity: str, kinds: Kinds) -> None:
    label, factor = QUANTITIES[quantity]
    known = rows[rows[quantity].notna()]
    for framework, of_framework in per_framework(known):
        color, marker = look(framework).color, look(framework).marker
        for kind, line in kinds.items():
            own = of_framework[of_framework["kind"] == kind]
            if own.empty:
                continue
            curve = factor * own.groupby("epoch")[quantity].agg(["mean", "min", "max"])
            done = curve.index + 1
            axes.fill_between(done, curve["min"], curve["max"], color=color, alpha=0.15, linewidth=0)  # fmt: skip
            axes.plot(
                done,
                curve["mean"],
                color=color,
                marker=marker,
                markevery=max(1, len(curve) // MARKERS),
                gid=kind,
                **line,
            )
    if known.empty:
        axes.text(0.5, 0.5, "not evaluated", transform=axes.transAxes, ha="center")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    axes.set_xlabel("Epoch")
    axes.set_ylabel(label)


def curve_handles(rows: pd.DataFrame, kinds: Kinds) -> list[Line2D]:
    """The lines of the legend, for those kinds that the rows have."""
    return [entry(kind, **line) for kind, line in kinds.items() if (rows["kind"] == kind).any()]


def framework_handles(rows: pd.DataFrame) -> list[Line2D]:
    """A line of the legend for each framework of the rows."""
    return [
        entry(labels.name(f), color=look(f).color, marker=look(f).marker)
        for f, _ in per_framework(rows)
    ]
