"""Where the time that a failure costs goes, by part, and what part of the time was useful all the same."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.report.answer.setups import PANEL_COLUMNS, ROW_COLUMNS, prepared
from ckptbench.report.figures.kit.axes import goodput
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    Panel,
    PaperFigure,
    draw_estimates,
    forest_plot,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.parts import Part, seen, stack, write_beside
from ckptbench.report.figures.kit.style import PART_COLORS, look

FIGURE = {
    "title": "Where the time of a failure goes",
    "tables": ("goodput", "runs", "machine", "provenance"),
    "of": "runs with failures",
    "about": "failure",
}
READING = (
    "Left: the cost of one failure by part, mean over failures and repeats; the number is the total. Steps that were faster with fewer "
    "ranks are left of 0, a gain. Table goodput splits detection and start further; its column explained is the fraction of the loss "
    "that the parts explain. Right: goodput, the useful time (as in the baseline) ÷ all time, with its 95 % interval; above 100 %, "
    "fewer ranks were faster than the baseline"
)
STARTING = ("choice_s", "launch_s", "import_s", "build_s", "regroup_s")
PARTS = {
    "detection": Part("detect, end all", PART_COLORS[0], "", ("detection_s", "ending_s")),
    "start": Part("start or regroup", PART_COLORS[1], "", STARTING),
    "load": Part("load", PART_COLORS[2], "//////", ("load_s",)),
    "again": Part("steps done again", PART_COLORS[3], "......", ("unfinished_s", "again_s")),
    "slower": Part("slower steps", PART_COLORS[4], "xxxxxx", ("slower_s",)),
    "rest": Part("other", PART_COLORS[5], "", ("rest_s",)),
}
ROW = (*ROW_COLUMNS, "history", "recovery")
ROOM = 1.3
"""The factor between the longest bar and the axis: the room for the numbers."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `goodput` and `provenance`."""
    shown = tables["goodput"][tables["goodput"]["failures"] > 0]
    if shown.empty:
        return nothing_to_show("No run had a failure, so there is no recovery to show.")
    rows = _prepared(with_disturbed(shown, tables, paired=True))
    text = caption(rows, tables["provenance"], READING, (*PANEL_COLUMNS, *ROW))
    figure, panels = forest_plot(
        rows,
        text,
        row_height_in=0.19,
        xlabels=["One failure (s)", "Goodput (%)"],
        axes_widths=(3, 1.2),
    )
    for panel in panels:
        _draw_parts(panel, rows)
        useful, appearance = panel.axes[1], look(panel.framework)
        draw_estimates(useful, panel.rows["y"], panel.rows, "goodput", appearance, factor=100)
        goodput(useful.xaxis, 100 * rows["goodput"], 100 * rows["goodput_hi"])
    widest = max(panel.axes[0].get_xlim()[1] for panel in panels)
    legend(figure, [part.handle() for part in seen(PARTS, rows[[*PARTS]] / widest)])
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, each with `facet`, `label`, and the seconds of every part for one failure."""
    parts = {
        name: shown[list(part.columns)].sum(axis=1) / shown["failures"]
        for name, part in PARTS.items()
    }
    return prepared(shown.assign(**parts), ROW)


def _seconds(number: float) -> str:
    return f"{number:.3g} s".replace("-", "\N{MINUS SIGN}")


def _draw_parts(panel: Panel, every: pd.DataFrame) -> None:
    axes, rows, names = panel.axes[0], panel.rows, list(PARTS)
    ends = stack(axes, rows, PARTS)
    totals = rows[names].sum(axis=1).map(_seconds)
    write_beside(axes, zip(ends, rows["y"], strict=True), totals, "total")
    facet = every.loc[every["facet"] == rows["facet"].iloc[0], names]
    longest = facet.clip(lower=0).sum(axis=1).max()
    axes.set_xlim(min(0.0, ROOM * facet.min(axis=None)), ROOM * longest)
