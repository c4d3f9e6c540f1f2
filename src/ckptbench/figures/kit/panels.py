"""The frame of every figure: size and caption, and the grid of panels whose rows are setups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from ckptbench.answer import labels
from ckptbench.answer.setups import CHECKPOINT, SEPARATOR, ordered, per_framework
from ckptbench.figures.kit.captions import text_width_in, wrapped
from ckptbench.figures.kit.disturbed import COLUMN, MARK, any_disturbed
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
AXIS_IN = 0.6
"""Width that the labels of a vertical axis may take."""
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


class PaperFigure(Figure):
    """A figure of the width of a column or a page, laid out by matplotlib, with the caption that stands beside it."""

    def __init__(self, width_in: float, height_in: float, caption: str) -> None:
        super().__init__((width_in, height_in), layout="constrained")
        self.caption = caption
        self.marks_disturbed = False


def mark_disturbed(axes: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    """Marks above the points of those rows that come from disturbed runs; the columns `x` and `y` are their places."""
    for place in rows.loc[rows[COLUMN], [x, y]].itertuples(index=False, name=None):
        axes.annotate(MARK, place, (0, 3), textcoords="offset points", ha="center", gid=COLUMN)
        _noted(axes)


def _noted(axes: Axes) -> None:
    figure = axes.get_figure()
    assert isinstance(figure, PaperFigure)
    figure.marks_disturbed = True


def nothing_to_show(sentence: str, caption: str) -> PaperFigure:
    """A figure that says in words why it has no panel."""
    lines = wrapped(sentence, COLUMN_IN - 0.4)
    figure = PaperFigure(COLUMN_IN, (len(lines) + 2) * LINE_IN, caption)
    figure.text(0.5, 0.5, "\n".join(lines), gid="nothing", ha="center", va="center")
    return figure


def legend(figure: PaperFigure, *rows: Sequence[Artist]) -> None:
    """Above all panels, in as few lines as have room, the mark of disturbed runs last. The figure grows by its height."""
    handles = [handle for row in rows for handle in row]
    if figure.marks_disturbed:
        sign = TextPath((-0.2, -0.3), MARK, size=1)
        handles.append(Line2D([], [], linestyle="", marker=sign, color=INK, label="disturbed"))
    for across in range(len(handles), 0, -1):
        drawn = figure.legend(handles=handles, loc="outside upper left", ncols=across)
        box = drawn.get_window_extent()
        if box.width <= figure.bbox.width - 2 * MARGIN_IN * figure.dpi or across == 1:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        drawn.remove()


def small_multiples(
    titles: Sequence[str], panel_in: float, caption: str, *, across: int = FACETS_ACROSS
) -> tuple[PaperFigure, list[Axes]]:
    """A figure with a panel of this height for each title, evenly in as few lines as at most so many side by side allow."""
    lines = -(-len(titles) // across)
    across = -(-len(titles) // lines)
    width_in = COLUMN_IN if across == 1 else PAGE_IN
    shown = [folded(title, width_in / across - AXIS_IN) for title in titles]
    title_in = LINE_IN * max(title.count("\n") for title in shown)
    height_in = lines * (panel_in + title_in + 1.6 * PANEL_EDGES_IN)
    figure = PaperFigure(width_in, height_in, caption)
    grid = figure.add_gridspec(lines, across)
    panels = [figure.add_subplot(grid[divmod(place, across)]) for place in range(len(titles))]
    for axes, title in zip(panels, shown, strict=True):
        axes.set_title(title)
    return figure, panels


def forest(
    frame: pd.DataFrame,
    caption: str,
    *,
    pitch_in: float,
    axes_widths: Sequence[float] = (1,),
    narrowest_in: float = NARROWEST_AXES_IN,
) -> tuple[PaperFigure, list[Panel]]:
    """A grid of panels: frameworks down, facets across (two if they fit, then the next below), a row each setup.

    `frame` has the columns framework, facet and label. All facets of a framework have the same rows, so
    that only the first column names them. `pitch_in` is the height of a row; where a label needs several lines, rows are higher.
    `narrowest_in` is the least width of the narrowest axes of a panel.
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
    figure = PaperFigure(width_in, height_in + LINE_IN, caption)
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
    figure: PaperFigure,
    grid: GridSpec,
    strip: _Strip,
    below: list[_Strip],
    *,
    place: int,
    width: int,
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
        placed = rows.assign(y=rows["label"].map(strip.labels.index))
        if any_disturbed(placed):
            _mark_rows(axes[0], placed.loc[placed[COLUMN], "y"])
        yield Panel(strip.framework, placed, axes, is_lowest=not _reaches(below, column))


def _mark_rows(axes: Axes, places: pd.Series) -> None:
    """Marks at the right edge, beside the rows of disturbed runs."""
    for y in places.unique():
        axes.text(1.01, y, MARK, transform=axes.get_yaxis_transform(), va="center", gid=COLUMN)
    _noted(axes)


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
