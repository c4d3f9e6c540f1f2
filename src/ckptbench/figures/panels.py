"""The frame of every figure: size and caption, and the grid of panels whose rows are setups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from ckptbench.figures import labels
from ckptbench.figures.captions import text_width_in, wrapped
from ckptbench.figures.setups import CHECKPOINT, ordered, per_framework
from ckptbench.figures.style import COLUMN_IN, INK, PAGE_IN

FACETS_ACROSS = 2
LINE_IN = 0.13
"""Height of a line of text."""
MARGIN_IN = 0.04
PANEL_EDGES_IN = 0.34
"""Height of a panel's title and tick labels."""
NARROWEST_AXES_IN = 0.8


@dataclass(frozen=True, slots=True)
class Panel:
    """One framework in one facet. `rows` has the column `y`: the place of the row's label."""

    framework: str
    rows: pd.DataFrame
    axes: tuple[Axes, ...]
    is_lowest: bool
    """Whether no panel is below: the one that names the axis."""


def paper_figure(width_in: float, height_in: float, caption: str) -> Figure:
    """An empty figure whose panels may be `height_in` high, above its caption."""
    lines = wrapped(caption, width_in - 2 * MARGIN_IN)
    caption_in = (len(lines) + 0.5) * LINE_IN
    total_in = height_in + caption_in
    figure = Figure(figsize=(width_in, total_in), layout="constrained")
    figure.get_layout_engine().set(rect=(0, caption_in / total_in, 1, height_in / total_in))  # type: ignore[union-attr]
    figure.text(
        MARGIN_IN / width_in,
        MARGIN_IN / total_in,
        "\n".join(lines),
        gid="caption",
        va="bottom",
        color=INK,
        linespacing=1.2,
    )
    return figure


def nothing_to_show(sentence: str, caption: str) -> Figure:
    """A figure that says in words why it has no panel."""
    figure = paper_figure(COLUMN_IN, 0.8, caption)
    lines = "\n".join(wrapped(sentence, COLUMN_IN - 0.4))
    figure.text(0.5, 0.75, lines, gid="nothing", ha="center", va="center")
    return figure


def forest(
    frame: pd.DataFrame, caption: str, *, pitch_in: float, axes_widths: Sequence[float] = (1,)
) -> tuple[Figure, list[Panel]]:
    """A grid of panels: frameworks down, facets across (two, then the next below), a row each setup.

    `frame` has the columns framework, facet and label. All facets of a framework have the same rows, so
    that only the first column names them. `pitch_in` is the height of a row.
    """
    facets = list(frame["facet"].unique())
    across = min(FACETS_ACROSS, len(facets))
    strips = list(_strips(frame, facets))
    height_in = sum(PANEL_EDGES_IN + pitch_in * len(strip.labels) for strip in strips)
    width_in = _width_in(frame, across * len(axes_widths))
    figure = paper_figure(width_in, height_in + 3 * LINE_IN, caption)
    grid = figure.add_gridspec(
        len(strips),
        across * len(axes_widths),
        height_ratios=[len(strip.labels) for strip in strips],
        width_ratios=list(axes_widths) * across,
    )
    return figure, [
        panel
        for place, strip in enumerate(strips)
        for panel in _panels(figure, grid, strips, place, strip, len(axes_widths))
    ]


@dataclass(frozen=True, slots=True)
class _Strip:
    """The panels of one framework side by side."""

    framework: str
    facets: list[str]
    labels: list[str]
    rows: pd.DataFrame


def _strips(frame: pd.DataFrame, facets: list[str]) -> Iterator[_Strip]:
    for start in range(0, len(facets), FACETS_ACROSS):
        chunk = facets[start : start + FACETS_ACROSS]
        for framework, rows in per_framework(frame[frame["facet"].isin(chunk)]):
            names = ordered(rows, [c for c in CHECKPOINT if c in rows])["label"].unique()
            yield _Strip(framework, chunk, list(names), rows)


def _width_in(frame: pd.DataFrame, axes_across: int) -> float:
    labels_in = max(map(text_width_in, frame["label"].unique()))
    narrow = labels_in + axes_across * NARROWEST_AXES_IN + 4 * MARGIN_IN <= COLUMN_IN
    return COLUMN_IN if narrow else PAGE_IN


def _panels(
    figure: Figure, grid: GridSpec, strips: list[_Strip], place: int, strip: _Strip, width: int
) -> Iterator[Panel]:
    """Those of one strip; a facet that the framework has no rows in stays empty."""
    named = False
    for column, facet in enumerate(strip.facets):
        rows = strip.rows[strip.rows["facet"] == facet]
        if rows.empty:
            continue
        axes = tuple(
            figure.add_subplot(grid[place, column * width + part]) for part in range(width)
        )
        for axis in axes:
            _prepare_rows(axis, strip.labels, named=named)
            named = True
        title = labels.name(strip.framework)
        axes[0].set_title(f"{title}, {facet}" if facet else title)
        yield Panel(
            strip.framework,
            rows.assign(y=rows["label"].map(strip.labels.index)),
            axes,
            is_lowest=not _below(strips[place + 1 :], column),
        )


def _below(strips: list[_Strip], column: int) -> bool:
    """Whether a strip further down has a panel in this column."""
    return any(
        column < len(strip.facets) and (strip.rows["facet"] == strip.facets[column]).any()
        for strip in strips
    )


def _prepare_rows(axes: Axes, names: list[str], *, named: bool) -> None:
    """One place on the y axis for each name, from the top; labels unless a panel to the left has them."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [""] * len(names) if named else names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
