"""The useful part of the time of runs that failures struck, against how often they strike: a curve for each recovery."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ckptbench.matrix.registry import FAULTS
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    ROW_COLUMNS,
    SEPARATOR,
    ordered,
    with_hardware,
)
from ckptbench.report.figures.kit import axes as kit
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    mark_disturbed,
    nothing_to_show,
    small_multiples,
)
from ckptbench.report.figures.kit.series import in_series
from ckptbench.report.figures.kit.style import LINE_STYLES, look

FIGURE = {
    "title": "Useful time against failures",
    "tables": ("goodput", "runs", "machine", "provenance"),
    "of": "runs with failures",
    "about": "failure",
}
NOTHING = "No run with a baseline had a failure, so there is no goodput to show."
READING = (
    "Goodput, the useful time (as in the baseline) ÷ all time, against the failures per hour of training, interruptions included. Each "
    "point is a setup under one failure trace, each vertical line a 95 % interval over repeats; above 100 %, fewer ranks were faster "
    "than the baseline{of_ranks}"
)
OF_RANKS = ". Goodput of ranks: goodput x ranks that trained ÷ ranks paid for"
SERIES = ("recovery", "strategy", "format", "interval")
PANELS = (*PANEL_COLUMNS, "ranks")
QUANTITIES = {"goodput": "Goodput (%)", "goodput_of_ranks": "Goodput of ranks (%)"}
DRAWN = tuple(name for name, entry in FAULTS.items() if "mean_s" in entry.options)
"""Traces of failures that differ in how often failures come. Points of others are not joined by a line."""
MARKERS = "osD^vPX*"
BESIDE = 0.15
"""Room beside points that are far from 0, in rates of the farthest."""
PANEL_IN = 1.25
Looks = Mapping[str, Mapping[str, Any]]


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `goodput` and `provenance`."""
    known = tables["goodput"]
    shown = known[(known["failures"] > 0) & known["goodput"].notna()]
    if shown.empty:
        return nothing_to_show(NOTHING)
    known = with_hardware(with_disturbed(shown, tables, paired=True))
    known = ordered(known, (*PANELS, "framework", *SERIES, "failures_per_hour"))
    rows = in_series(known, PANELS, SERIES, len(LINE_STYLES))
    fewer = (rows["ranks_used"] < rows["ranks"]).any()
    quantities = [*QUANTITIES] if fewer else ["goodput"]
    reading = READING.format(of_ranks=OF_RANKS if fewer else "")
    text = caption(rows, tables["provenance"], reading, (*PANEL_COLUMNS, *ROW_COLUMNS, "recovery"))
    names = list(rows["series"].unique())
    looks = cycle(zip(LINE_STYLES, MARKERS, strict=True))
    styles = {
        name: {"linestyle": line_style, "marker": marker}
        for name, (line_style, marker) in zip(names, looks, strict=False)
    }
    panels = [panel for _, panel in rows.groupby("title", sort=False)]
    cells = [(panel, name) for panel in panels for name in quantities]
    titles = [_title(panel, name if fewer else "") for panel, name in cells]
    figure, drawn = small_multiples(titles, PANEL_IN, text)
    ends = 100 * rows[[f"{name}_hi" for name in quantities]].to_numpy(float).ravel()
    for axes, (panel, quantity) in zip(drawn, cells, strict=True):
        _draw_panel(axes, panel, quantity, styles)
        kit.goodput(axes.yaxis, 100 * rows[quantities].to_numpy(float).ravel(), ends)
    joined = rows[rows["history_name"].isin(DRAWN)].groupby(["title", "series"]).size()
    lines = set(joined[joined > 1].index.get_level_values("series"))
    handles = [
        entry(name, **{**own, **({} if name in lines else {"linestyle": ""})})
        for name, own in styles.items()
    ]
    legend(figure, handles if len(names) > 1 else [])
    return figure


def _title(panel: pd.DataFrame, quantity: str) -> str:
    title = str(panel["title"].iloc[0])
    return f"{title}{SEPARATOR}{quantity.replace('_', ' ')}" if quantity else title


def _draw_panel(axes: Axes, panel: pd.DataFrame, quantity: str, styles: Looks) -> None:
    color = look(panel["framework"].iloc[0]).color
    rate = panel["failures_per_hour"]
    low, high = (100 * panel[f"{quantity}_{end}"] for end in ("lo", "hi"))
    axes.vlines(rate, low, high, colors=color, alpha=0.5, gid=f"{quantity} interval")
    for name, own in panel.groupby("series", sort=False):
        curve = own.sort_values("failures_per_hour")
        drawn = curve["history_name"].isin(DRAWN)
        for rows, joined in ((curve[drawn], {}), (curve[~drawn], {"linestyle": ""})):
            if len(rows):
                axes.plot(
                    rows["failures_per_hour"],
                    100 * rows[quantity],
                    color=color,
                    label=str(name),
                    gid=quantity,
                    **{**styles[str(name)], **joined},
                )
    mark_disturbed(axes, panel.assign(y=100 * panel[quantity]), "failures_per_hour", "y")
    least, most = float(rate.min()), float(rate.max())
    left = 0.0 if least < most / 2 else least - BESIDE * most
    axes.set_xlim(left, (1.05 if left == 0 else 1 + BESIDE) * most)
    axes.set_xlabel("Failures per hour")
    axes.set_ylabel(QUANTITIES[quantity])
