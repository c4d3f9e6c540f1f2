"""Overhead of checkpointing: both estimates of every setup, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.report.answer.quantities import percent_of
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
from ckptbench.report.figures.kit.style import BAND, FAINT, INK, look

FIGURE = {
    "title": "Overhead of checkpointing",
    "tables": ("overhead", "provenance"),
    "of": "undisturbed runs",
    "about": "cost",
}
NOTHING = "No run with checkpoints was timed from start to end, so there is no overhead to show."
READING = (
    "extra training time due to checkpoints, estimated in two ways: against the baseline of the same ranks, repeat and seed, and from "
    "inside the run (stalls plus slower steps). Points are estimates, bars 95 % intervals; a setup with one repeat borrows the spread "
    "of the others. In colour, with its value: the number to quote, which is the estimate from inside the run unless the baseline "
    "contradicts it (shaded: the intervals do not overlap). Grey with its value: no interval, as nothing ran twice; small and grey: the other "
    "estimate. Ticks: the estimate from inside the run if every checkpoint cost as much as in the steady state"
)
ESTIMATES = {"paired": -0.17, "in_run": 0.17}
"""Vertical offset of each estimate within its row, by the column of the estimate."""


QUOTED, OTHER = 4.5, 2.5
"""Sizes of both points of a row."""
RIGHT_POINTS = 9
"""How far right of the panel the number stands, beyond the mark of disturbed runs."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `overhead` and `provenance`."""
    if tables["overhead"].empty:
        return nothing_to_show(NOTHING)
    rows = prepared(tables["overhead"], (*ROW_COLUMNS, "recovery"))
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
        quoted, sure = rows["overhead_from"] == estimate, rows["overhead_hi"].notna()
        for own, color, size in (
            (rows[~quoted], FAINT, OTHER),
            (rows[quoted & ~sure], FAINT, QUOTED),
            (rows[quoted & sure], appearance.color, QUOTED),
        ):
            shown = replace(appearance, color=color)
            if len(own):
                draw_estimates(axes, own["y"] + offset, own, estimate, shown, factor=100, fill=fill, size=size)  # fmt: skip
    beside = axes.get_yaxis_transform()
    shown_numbers = rows.loc[rows["overhead"].notna(), ["y", "overhead", "overhead_hi"]]
    for y, number, high in shown_numbers.itertuples(index=False):
        color = FAINT if pd.isna(high) else INK
        axes.annotate(percent_of(number), (1, y), (RIGHT_POINTS, 0), beside, "offset points", va="center", gid="quoted", color=color)  # fmt: skip
    places = rows["y"] + ESTIMATES["in_run"]
    axes.plot(100 * rows["in_run_steady"], places, "|", color=INK, markersize=6, gid="steady")


def _disagree(rows: pd.DataFrame) -> pd.Series:
    return rows["agree"].eq(False).fillna(False).astype(bool)


def _legend(rows: pd.DataFrame, marker: str) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        entry("paired with baseline", marker=marker, markersize=QUOTED),
        entry("from inside the run", marker=marker, markersize=QUOTED, markerfacecolor="white"),
        entry("grey: do not quote", marker=marker, linestyle="", color=FAINT, markersize=OTHER),
    ]
    if rows["in_run_steady"].notna().any():
        handles.append(entry("steady state", marker="|", linestyle="", markersize=6))
    if _disagree(rows).any():
        handles.append(Patch(facecolor=BAND, label="the two disagree"))
    return handles
