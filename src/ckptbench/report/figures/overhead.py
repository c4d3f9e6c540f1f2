"""Overhead of checkpointing: both estimates of every setup, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.report.answer.setups import PANEL_COLUMNS, ROW_COLUMNS, prepared
from ckptbench.report.figures.kit.axes import percent
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import (
    Panel,
    PaperFigure,
    draw_estimates,
    entry,
    forest_plot,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.style import BAND, INK, look

FIGURE = {
    "title": "Overhead of checkpointing",
    "tables": ("overhead", "provenance"),
    "of": "undisturbed runs",
    "about": "cost",
}
NOTHING = "No run with checkpoints was timed from start to end: there is no overhead to show."
READING = (
    "what checkpoints add to the training time, estimated twice: against the baseline of the same ranks, repeat and seed, and from inside the run,"
    " by its stalls and slower steps. Points are estimates, bars their 95 % intervals; one repeat has the spread of the other setups, if any has two."
    " Ticks are the estimate from inside the run, had every checkpoint cost what those of the steady state did. Shaded: the two intervals do not overlap; the one against the baseline counts."
    " The axis is logarithmic beyond 10 % where an overhead is above 100 %"
)
ESTIMATES = {"paired": -0.17, "in_run": 0.17}
"""Vertical offset of each estimate within its row, by the column of the estimate."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `overhead` and `provenance`."""
    if tables["overhead"].empty:
        return nothing_to_show(NOTHING)
    rows = prepared(tables["overhead"])
    text = caption(
        rows, tables["provenance"], READING, (*PANEL_COLUMNS, "steps_per_epoch", *ROW_COLUMNS)
    )
    figure, panels = forest_plot(rows, text, row_height_in=0.15, xlabels=["Overhead (%)"])
    columns = [f"{estimate}{end}" for estimate in ESTIMATES for end in ("", "_lo", "_hi")]
    values = 100 * rows[[*columns, "in_run_steady"]].to_numpy(float).ravel()
    for panel in panels:
        _draw_panel(panel)
        percent(panel.axes[0].xaxis, values)
    legend(figure, _legend(rows, look(panels[0].framework).marker))
    return figure


def _draw_panel(panel: Panel) -> None:
    (axes,) = panel.axes
    rows, appearance = panel.rows, look(panel.framework)
    axes.axvline(0, color=INK, linewidth=0.5)
    for y in rows.loc[_disagree(rows), "y"]:
        axes.axhspan(y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0, gid="disagree")
    for estimate, offset in ESTIMATES.items():
        fill = "white" if estimate == "in_run" else ""
        draw_estimates(axes, rows["y"] + offset, rows, estimate, appearance, factor=100, fill=fill)
    places = rows["y"] + ESTIMATES["in_run"]
    axes.plot(100 * rows["in_run_steady"], places, "|", color=INK, markersize=6, gid="steady")


def _disagree(rows: pd.DataFrame) -> pd.Series:
    return rows["agree"].eq(False).fillna(False).astype(bool)


def _legend(rows: pd.DataFrame, marker: str) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        entry("paired with baseline", marker=marker),
        entry("from inside the run", marker=marker, markerfacecolor="white"),
    ]
    if rows["in_run_steady"].notna().any():
        handles.append(entry("steady state", marker="|", linestyle="", markersize=6))
    if _disagree(rows).any():
        handles.append(Patch(facecolor=BAND, label="the two intervals do not overlap"))
    return handles
