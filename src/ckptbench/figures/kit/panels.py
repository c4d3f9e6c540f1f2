"""The frame of every figure: size and caption, and the grid of panels whose rows are setups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from ckptbench.answer import labels
from ckptbench.answer.setups import CHECKPOINT, SEPARATOR, ordered, per_framework
from ckptbench.figures.kit.captions import text_width_in, wrapped
from ckptbench.figures.kit.style import COLUMN_IN, INK, PAGE_IN

FACETS_ACROSS = 2
LINE_IN = 0.13
"""Height of a line of text."""
MARGIN_IN = 0.04
PANEL_EDGES_IN = 0.34
"""Height of a panel's title and tick labels."""
LABEL_IN = 2.2
"""Width that the labels of rows may take, which leaves room for the panels."""
NARROWEST_AXES_IN = 0.6
BOLD = 1.15
"""The factor between the widths of bold and of ordinary letters."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One framework in one facet. `rows` has the column `y`: the place of the row's label."""

    framework: str
    rows: pd.DataFrame
    axes: tuple[Axes, ...]
    is_lowest: bool
    """Whether no panel is below this one. The lowest panel names the axis."""


def paper_figure(width_in: float, height_in: float, caption: str) -> Figure:
    """An empty figure whose panels may be `height_in` high, above its caption."""
    lines = wrapped(caption, width_in - 2 * MARGIN_IN)
    caption_in = (len(lines) + 0.5) * LINE_IN
    total_in = height_in + caption_in
    # The rectangle that the layout fills, as (left, bottom, width, height) in parts of the figure.
    panels = (0.0, caption_in / total_in, 1.0, height_in / total_in)
    figure = Figure((width_in, total_in), layout=ConstrainedLayoutEngine(rect=panels))
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
    lines = wrapped(sentence, COLUMN_IN - 0.4)
    figure = paper_figure(COLUMN_IN, (len(lines) + 2) * LINE_IN, caption)
    top = 1 - LINE_IN / figure.get_figheight()
    figure.text(0.5, top, "\n".join(lines), gid="nothing", ha="center", va="top")
    return figure


def legend(figure: Figure, *rows: Sequence[Artist]) -> None:
    """Above all panels: each of `rows` is a line of the legend; rows that are empty are left out."""
    lines = [row for row in rows if row]
    across = max(map(len, lines))
    blank = Line2D([], [], linestyle="", label=" ")
    by_column = [
        row[column] if column < len(row) else blank for column in range(across) for row in lines
    ]
    figure.legend(handles=by_column, loc="outside upper left", ncols=across)


HANDLE_IN = 0.55
"""Width of the line and the gaps beside a name in the legend."""


def side_by_side(handles: Sequence[Line2D], width_in: float) -> list[list[Line2D]]:
    """The handles in the fewest lines of a legend in which their names fit beside one another."""
    widths = [text_width_in(str(handle.get_label())) + HANDLE_IN for handle in handles]
    for across in range(len(handles), 0, -1):
        columns = [max(widths[column::across]) for column in range(across)]
        if sum(columns) <= width_in or across == 1:
            return [list(handles[first : first + across]) for first in range(0, len(handles), across)]  # fmt: skip
    return []


def forest(
    frame: pd.DataFrame,
    caption: str,
    *,
    pitch_in: float,
    axes_widths: Sequence[float] = (1,),
    narrowest_in: float = NARROWEST_AXES_IN,
    legend_lines: int = 3,
) -> tuple[Figure, list[Panel]]:
    """A grid of panels: frameworks down, facets across (two if they fit, then the next below), a row each setup.

    `frame` has the columns framework, facet and label. All facets of a framework have the same rows, so
    that only the first column names them. `pitch_in` is the height of a row; where a label needs several lines, rows are higher.
    `narrowest_in` is the least width of the narrowest axes of a panel. `legend_lines` is the room that the legend gets.
    """
    frame = frame.assign(label=frame["label"].map(folded))
    lines = frame["label"].str.count("\n").max() + 1
    pitch_in = max(pitch_in, lines * LINE_IN + (lines > 1) * MARGIN_IN)
    facets = list(frame["facet"].unique())
    across, width_in = _extent(
        frame, len(facets), narrowest_in * sum(axes_widths) / min(axes_widths)
    )
    strips = list(_strips(frame, facets, across))
    height_in = sum(PANEL_EDGES_IN + pitch_in * len(strip.labels) for strip in strips)
    figure = paper_figure(width_in, height_in + legend_lines * LINE_IN, caption)
    grid = figure.add_gridspec(
        len(strips),
        across * len(axes_widths),
        height_ratios=[len(strip.labels) for strip in strips],
        width_ratios=list(axes_widths) * across,
    )
    return figure, [
        panel
        for place, strip in enumerate(strips)
        for panel in _panels(
            figure, grid, strip, strips[place + 1 :], place=place, width=len(axes_widths)
        )
    ]


def folded(label: str, width_in: float = LABEL_IN) -> str:
    """The label in lines of this width, in inches. A part that begins a line has no separator before it."""
    lines: list[str] = []
    for part in label.split(SEPARATOR):
        longer = f"{lines[-1]}{SEPARATOR}{part}" if lines else part
        if lines and text_width_in(longer) <= width_in:
            lines[-1] = longer
        else:
            lines += wrapped(part, width_in)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Strip:
    """The panels of one framework side by side."""

    framework: str
    facets: list[str]
    labels: list[str]
    rows: pd.DataFrame


def _strips(frame: pd.DataFrame, facets: list[str], across: int) -> Iterator[_Strip]:
    for start in range(0, len(facets), across):
        chunk = facets[start : start + across]
        for framework, rows in per_framework(frame[frame["facet"].isin(chunk)]):
            names = ordered(rows, [c for c in CHECKPOINT if c in rows])["label"].unique()
            yield _Strip(framework, chunk, list(names), rows)


def _extent(frame: pd.DataFrame, facets: int, axes_in: float) -> tuple[int, float]:
    """How many facets stand side by side, and the width of the figure in inches: one column where labels,
    titles and the narrowest axes have room there, else the page."""
    pairs = {(framework, facet) for framework, facet in frame[["framework", "facet"]].to_numpy()}
    titles = {_title(*pair) for pair in pairs}
    panel_in = max(axes_in, BOLD * max(map(text_width_in, titles)) + MARGIN_IN)
    labels_in = max(
        text_width_in(line) for name in frame["label"].unique() for line in name.split("\n")
    )
    # Where a framework has no rows in the first facet, the labels stand in the second column too.
    everywhere = len(pairs) == frame["framework"].nunique() * facets

    def needed_in(across: int) -> float:
        columns = 1 if everywhere else across
        return columns * labels_in + across * panel_in + 4 * MARGIN_IN

    across = min(FACETS_ACROSS, facets)
    if needed_in(across) > PAGE_IN:
        across = 1
    return across, COLUMN_IN if needed_in(across) <= COLUMN_IN else PAGE_IN


def _title(framework: str, facet: str) -> str:
    return f"{labels.name(framework)}, {facet}" if facet else labels.name(framework)


def _panels(
    figure: Figure, grid: GridSpec, strip: _Strip, below: list[_Strip], *, place: int, width: int
) -> Iterator[Panel]:
    """The panels of one strip. A facet in which the framework has no rows stays empty."""
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
        axes[0].set_title(_title(strip.framework, facet))
        yield Panel(
            strip.framework,
            rows.assign(y=rows["label"].map(strip.labels.index)),
            axes,
            is_lowest=not _reaches(below, column),
        )


def _reaches(strips: list[_Strip], column: int) -> bool:
    """Whether one of the strips has a panel in this column."""
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
