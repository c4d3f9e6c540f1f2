"""Overhead of checkpointing: both estimates of every setup, with their bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.figures.captions import caption
from ckptbench.figures.panels import Panel, forest, nothing_to_show
from ckptbench.figures.setups import CHECKPOINT, SYSTEM, prepared
from ckptbench.figures.style import BAND, INK, look

READING = "Points are estimates, bars their bootstrap 95 % intervals"
SINGLE = "with one repeat they show the variation within the run only"
ESTIMATES = {"paired": -0.17, "in_run": 0.17}
"""By its column, where in its row an estimate stands."""


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `overhead` and `provenance`."""
    shown = tables["overhead"]
    if shown.empty:
        text = caption(shown, tables["provenance"], "")
        return nothing_to_show("No run with checkpoints: there is no overhead to show.", text)
    rows = prepared(shown)
    text = caption(rows, tables["provenance"], _reading(rows), (*SYSTEM, *CHECKPOINT))
    figure, panels = forest(rows, text, pitch_in=0.18)
    low, high = _limits_percent(rows)
    for panel in panels:
        _draw_panel(panel)
        panel.axes[0].set_xlim(low, high)
    figure.legend(handles=_legend(rows), loc="outside upper left", ncols=2)
    return figure


def _reading(rows: pd.DataFrame) -> str:
    return f"{READING}; {SINGLE}" if (rows["repeats"] == 1).any() else READING


def _draw_panel(panel: Panel) -> None:
    (axes,) = panel.axes
    axes.axvline(0, color=INK, linewidth=0.5)
    for y in panel.rows.loc[_disagree(panel.rows), "y"]:
        axes.axhspan(y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0, gid="disagree")
    for estimate in ESTIMATES:
        _draw_estimate(axes, panel, estimate)
    if panel.is_lowest:
        axes.set_xlabel("Overhead (%)")


def _draw_estimate(axes: Axes, panel: Panel, estimate: str) -> None:
    rows, appearance = panel.rows, look(panel.framework)
    y = rows["y"] + ESTIMATES[estimate]
    axes.hlines(
        y, 100 * rows[f"{estimate}_lo"], 100 * rows[f"{estimate}_hi"], colors=appearance.color
    )
    axes.plot(
        100 * rows[estimate],
        y,
        appearance.marker,
        color=appearance.color,
        markerfacecolor=appearance.color if estimate == "paired" else "white",
        gid=estimate,
    )


def _disagree(rows: pd.DataFrame) -> pd.Series:
    return rows["agree"].eq(False).fillna(False).astype(bool)


def _limits_percent(rows: pd.DataFrame) -> tuple[float, float]:
    """Ends of the axis, the same in all panels: every interval and zero, with some room."""
    columns = [f"{estimate}{end}" for estimate in ESTIMATES for end in ("", "_lo", "_hi")]
    values = 100 * rows[columns].to_numpy()
    low, high = min(np.nanmin(values), 0), max(np.nanmax(values), 0)
    room = 0.05 * (high - low or 1)
    return low - room, high + room


def _legend(rows: pd.DataFrame) -> list[Artist]:
    point = {"marker": "o", "color": INK}
    handles: list[Artist] = [
        Line2D([], [], **point, label="paired with baseline"),
        Line2D([], [], **point, markerfacecolor="white", label="from inside the run"),
    ]
    if _disagree(rows).any():
        handles.append(Patch(facecolor=BAND, label="intervals do not overlap"))
    return handles
