"""Loss and accuracy by epoch: what a panel of such curves shows, and its line in the legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ckptbench.answer.setups import per_framework
from ckptbench.figures.kit.style import INK, LineStyle, look


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of run, never averaged with another, and its line.

    Curves of different kinds often are the same to the last bit: all must be seen when they coincide.
    """

    name: str
    line_style: LineStyle
    width_points: float
    alpha: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column, what it is called on its axis, and the factor between the two."""

    column: str
    label: str
    scale: float


MARKERS = 6
"""About how many markers a line gets."""
QUANTITIES = (
    Quantity("training_loss", "Training loss", 1),
    Quantity("test_accuracy", "Test accuracy (%)", 100),
)


def draw_curves(axes: Axes, rows: pd.DataFrame, quantity: Quantity, kinds: Sequence[Kind]) -> None:
    """A mean line and a band from the smallest to the largest for each framework and `kind`."""
    known = rows[rows[quantity.column].notna()]
    for framework, kind, own in _curves(known, kinds):
        color, marker = look(framework).color, look(framework).marker
        curve = quantity.scale * own.groupby("epoch")[quantity.column].agg(["mean", "min", "max"])
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
            markevery=max(1, len(curve) // MARKERS),
            gid=kind.name,
        )
    if known.empty:
        axes.text(0.5, 0.5, "not evaluated", transform=axes.transAxes, ha="center")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    axes.set_ylabel(quantity.label)


def _curves(rows: pd.DataFrame, kinds: Sequence[Kind]) -> Iterator[tuple[str, Kind, pd.DataFrame]]:
    for framework, own in per_framework(rows):
        for kind in kinds:
            curve = own[own["kind"] == kind.name]
            if len(curve):
                yield framework, kind, curve


def kind_handles(rows: pd.DataFrame, kinds: Sequence[Kind]) -> list[Line2D]:
    """The lines of the legend, for those kinds that the rows have."""
    present = set(rows["kind"])
    return [
        Line2D(
            [],
            [],
            color=INK,
            linestyle=kind.line_style,
            linewidth=kind.width_points,
            alpha=kind.alpha,
            label=kind.name,
        )
        for kind in kinds
        if kind.name in present
    ]
