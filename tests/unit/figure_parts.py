"""Parts of a drawn figure that tests look at."""

from __future__ import annotations

import matplotlib as mpl
from figure_tables import Study
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ckptbench.report.figures.kit.panels import PaperFigure

SMALL = Study(struck=("exponential mean_s=60",)).tables()


def caption_of(figure: PaperFigure) -> str:
    assert not figure.findobj(lambda artist: artist.get_gid() == "caption")
    return figure.caption


def titles(figure: Figure) -> list[str]:
    return [title for axes in figure.axes if (title := axes.get_title(loc="left"))]


def lines(axes: Axes, gid: str) -> list[mpl.lines.Line2D]:
    return [line for line in axes.lines if line.get_gid() == gid]


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def row_labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]
