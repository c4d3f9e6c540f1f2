"""The frame of every figure: its size, caption and legend, and grids of panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill, wrap
from typing import Any, Final, Literal

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from ckptbench.report.answer import labels
from ckptbench.report.answer.setups import ROW_COLUMNS, SEPARATOR, ordered, per_framework
from ckptbench.report.figures.kit.disturbed import DISTURBED, MARK
from ckptbench.report.figures.kit.style import COLUMN_IN, INK, PAGE_IN, Look

LINE_IN = 0.13
"""Height of a line of text."""
PANEL_EDGES_IN = 0.34
"""Height of a panel's title and tick labels."""
LETTERS_AN_INCH = 18
"""About how many letters of the style's font stand in an inch."""
LABEL_LETTERS = 46
"""The longest line of a row's label, which leaves room for the panels."""
AXIS_IN = 0.6
"""Width that the labels of a vertical axis may take."""
NARROWEST_AXES_IN = 0.85
"""The least width of an axes: that of the name of what it shows."""


ABOVE: Final = "outside upper left"
BELOW: Final = "outside lower left"
"""Places of a legend."""


class PaperFigure(Figure):
    """A figure of the width of a column or a page, laid out by matplotlib, with the caption that stands beside it."""

    def __init__(self, width_in: float, height_in: float, caption: str) -> None:
        super().__init__((width_in, height_in), layout="constrained")
        # This canvas keeps the bitmap that texts are measured with. Without it each text makes one of the whole page, and keeps that.
        FigureCanvasAgg(self)
        self.caption = caption
        self.marks_disturbed = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One framework in one facet of a forest_plot. `rows` has the column `y`: the place of the row's label."""

    framework: str
    rows: pd.DataFrame
    axes: tuple[Axes, ...]


def nothing_to_show(sentence: str, caption: str = "") -> PaperFigure:
    """A figure that says in words why it has no panel. Its caption repeats it unless there is more to say."""
    text = fill(sentence, int((COLUMN_IN - 0.4) * LETTERS_AN_INCH))
    figure = PaperFigure(COLUMN_IN, (text.count("\n") + 3) * LINE_IN, caption or sentence)
    figure.text(0.5, 0.5, text, gid="nothing", ha="center", va="center")
    return figure


def entry(label: str, **look: Any) -> Line2D:
    """A line, or a mark alone, of the legend. Its color says nothing where none is given."""
    return Line2D([], [], **{"color": INK, **look}, label=label)


def legend(figure: PaperFigure, handles: Sequence[Artist], place: Literal["outside upper left", "outside lower left"] = ABOVE) -> None:  # fmt: skip
    """Above all panels (or below), in as few lines as have room; above, the mark of disturbed runs is the last. The figure grows by its height."""
    handles = list(handles)
    if figure.marks_disturbed and place == ABOVE:
        sign = TextPath((-0.2, -0.3), MARK, size=1)
        handles.append(entry("disturbed", linestyle="", marker=sign))
    for across in range(len(handles), 0, -1):
        drawn = figure.legend(handles=handles, loc=place, ncols=across)
        box = drawn.get_window_extent()
        if box.width <= 0.98 * figure.bbox.width or across == 1:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        drawn.remove()


def mark_disturbed(axes: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Marks above the points of those rows that come from disturbed runs; the columns `x` and `y` are their places."""
    for place in rows.loc[rows[DISTURBED], [x, y]].itertuples(index=False, name=None):
        axes.annotate(MARK, place, (0, 3), textcoords="offset points", ha="center", gid=DISTURBED)
        _note_disturbed(axes)


def _note_disturbed(axes: Axes) -> None:
    figure = axes.get_figure()
    assert isinstance(figure, PaperFigure)
    figure.marks_disturbed = True


def draw_estimates(axes: Axes, places: pd.Series, rows: pd.DataFrame, column: str, look: Look, *, factor: float, fill: str = "", size: float = 3.5) -> None:  # fmt: skip
    """A point for each row at its place on the y axis, with the interval from `<column>_lo` to `<column>_hi` as a bar."""
    low, value, high = (factor * rows[f"{column}{end}"] for end in ("_lo", "", "_hi"))
    axes.hlines(places, low, high, colors=look.color, gid=f"{column} interval")
    axes.plot(value, places, look.marker, color=look.color, markerfacecolor=fill or look.color, markersize=size, gid=column)  # fmt: skip


def small_multiples(
    titles: Sequence[str], panel_in: float, caption: str, *, across: int = 2
) -> tuple[PaperFigure, list[Axes]]:
    """One panel a title, at most `across` in a line, lines filled evenly."""
    lines = -(-len(titles) // across)
    across = -(-len(titles) // lines)
    width_in = COLUMN_IN if across == 1 else PAGE_IN
    letters = int((width_in / across - AXIS_IN) * LETTERS_AN_INCH)
    shown = [title if "\n" in title else folded(title, letters) for title in titles]
    title_in = LINE_IN * max(title.count("\n") for title in shown)
    figure = PaperFigure(width_in, lines * (panel_in + title_in + 1.6 * PANEL_EDGES_IN), caption)
    grid = figure.subplots(lines, across, squeeze=False).ravel()
    for axes, title in zip(grid, shown, strict=False):
        axes.set_title(title)
    for axes in grid[len(titles) :]:
        axes.remove()
    return figure, list(grid[: len(titles)])


def forest_plot(
    frame: pd.DataFrame,
    caption: str,
    *,
    row_height_in: float,
    xlabels: Sequence[str],
    axes_widths: Sequence[float] = (1,),
    ranked_by: str = "",
) -> tuple[PaperFigure, list[Panel]]:
    """A grid of panels: frameworks down, facets across (two if they fit, then the next below), a row each setup.

    `frame` has the columns framework, facet and label. A panel has an axes for each of `xlabels`, which the lowest panels name.
    Facets side by side have the same rows, so that only the first names them; with `ranked_by`, those of the same ranks and interval are in
    the order of this column. `row_height_in` is the least height of a row.
    """
    frame = frame.assign(label=frame["label"].map(folded))
    lines_of_label = frame["label"].str.count("\n").max() + 1
    row_height_in = max(row_height_in, lines_of_label * LINE_IN + 0.04 * (lines_of_label > 1))
    facets, width = list(frame["facet"].unique()), len(xlabels)
    across, width_in = _extent(frame, len(facets), axes_widths)
    strips = [
        (framework, chunk, rows)
        for start in range(0, len(facets), across)
        for chunk in [facets[start : start + across]]
        for framework, rows in per_framework(frame[frame["facet"].isin(chunk)])
    ]
    names = [_row_names(rows, ranked_by) for _, _, rows in strips]
    height_in = sum(PANEL_EDGES_IN + row_height_in * len(own) for own in names) + LINE_IN
    figure = PaperFigure(width_in, height_in, caption)
    grid = figure.subplots(
        len(strips),
        across * width,
        squeeze=False,
        height_ratios=[len(own) for own in names],
        width_ratios=[*axes_widths] * across,
    )
    panels, lowest = [], {}
    for line, (framework, chunk, rows), own_names in zip(grid, strips, names, strict=True):
        named = False
        for column in range(across):
            axes = tuple(line[column * width :][:width])
            own = rows[rows["facet"].isin(chunk[column : column + 1])]
            if own.empty:
                for each in axes:
                    each.remove()
                continue
            panel = Panel(framework, own.assign(y=own["label"].map(own_names.index)), axes)
            _prepare(panel, own_names, named=named)
            panels.append(panel)
            lowest[column] = axes
            named = True
    for axes in lowest.values():
        for each, label in zip(axes, xlabels, strict=True):
            each.set_xlabel(label)
    return figure, panels


def folded(label: str, letters: int = LABEL_LETTERS) -> str:
    """The label in lines of at most so many letters. A part that begins a line has no separator before it."""
    lines: list[str] = []
    for part in label.split(SEPARATOR):
        longer = f"{lines[-1]}{SEPARATOR}{part}" if lines else part
        if lines and len(longer) <= letters:
            lines[-1] = longer
        else:
            lines += wrap(part, letters)
    return "\n".join(lines)


def _row_names(rows: pd.DataFrame, ranked_by: str) -> list[str]:
    columns = [column for column in ROW_COLUMNS if column in rows]
    if ranked_by:
        rows = rows.assign(place=rows[ranked_by].fillna(math.inf))
        columns = ["ranks", "interval", "place", *columns]
    return list(ordered(rows, columns)["label"].unique())


def _extent(frame: pd.DataFrame, facets: int, axes_widths: Sequence[float]) -> tuple[int, float]:
    """How many facets stand side by side, and the width of the figure: a column where labels, titles and the narrowest axes have room there."""
    pairs = frame[["framework", "facet"]].drop_duplicates()
    titles = [_title(*pair) for pair in pairs.to_numpy()]
    labels_in = max(len(line) for text in frame["label"] for line in text.split("\n")) / LETTERS_AN_INCH  # fmt: skip
    axes_in = NARROWEST_AXES_IN * sum(axes_widths) / min(axes_widths)
    panel_in = max(axes_in, 1.15 * max(map(len, titles)) / LETTERS_AN_INCH)
    # Where a framework lacks a facet, its half of the line would be empty.
    is_full = len(pairs) == frame["framework"].nunique() * facets
    across = 2 if facets > 1 and is_full and labels_in + 2 * panel_in <= PAGE_IN else 1
    return across, COLUMN_IN if labels_in + across * panel_in <= COLUMN_IN else PAGE_IN


def _title(framework: str, facet: str) -> str:
    return f"{labels.name(framework)}, {facet}" if facet else labels.name(framework)


def _prepare(panel: Panel, names: list[str], *, named: bool) -> None:
    """The title, and one place on the y axes for each name, from the top; labels unless a panel to the left has them."""
    panel.axes[0].set_title(_title(panel.framework, panel.rows["facet"].iloc[0]))
    for place, axes in enumerate(panel.axes):
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), [""] * len(names) if named or place else names)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
    if DISTURBED in panel.rows and panel.rows[DISTURBED].any():
        right = panel.axes[0].get_yaxis_transform()
        for y in panel.rows.loc[panel.rows[DISTURBED], "y"].unique():
            panel.axes[0].text(1.01, y, MARK, transform=right, va="center", gid=DISTURBED)
        _note_disturbed(panel.axes[0])
