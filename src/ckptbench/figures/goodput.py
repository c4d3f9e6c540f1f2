"""The useful part of the time of runs that failures struck, against how often they strike: a curve for each recovery."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.answer import labels
from ckptbench.answer.setups import (
    CHECKPOINT,
    SYSTEM,
    faceted,
    in_words,
    ordered,
    with_hardware,
)
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.disturbed import with_disturbed
from ckptbench.figures.kit.panels import (
    PaperFigure,
    legend,
    mark_disturbed,
    nothing_to_show,
    small_multiples,
)
from ckptbench.figures.kit.style import INK, LINE_STYLES, LineStyle, look
from ckptbench.figures.kit.ticks import of_whole
from ckptbench.figures.kit.useful import beyond, farthest_of
from ckptbench.matrix.catalogue import FAULTS
from ckptbench.matrix.named import has_name

READING = (
    "Useful time of all time, the useful time being that of the baseline, against the failures that struck in an hour of training, as it"
    " happened. Each point is a setup under one trace of failures{intervals}{beyond}{of_ranks}"
)
INTERVALS = "; vertical lines are 95 % intervals over repeats"
OF_RANKS = ". Right: the same times the ranks that trained, of those that are paid for"
SERIES = ("recovery", "strategy", "format", "interval")
PANELS = (*SYSTEM, "ranks")
QUANTITIES = {"goodput": "Goodput (%)", "goodput_of_ranks": "Goodput of ranks (%)"}
DRAWN = tuple(name for name, entry in FAULTS.items() if "mean_s" in entry.options)
"""Traces of failures that differ in how often failures come. Points of others are not joined by a line."""
MARKERS = "osD^vPX*"
PANEL_IN = 1.25


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `goodput` and `provenance`."""
    known = tables["goodput"]
    shown = known[(known["failures"] > 0) & known["goodput"].notna()]
    if shown.empty:
        return nothing_to_show(
            "No failure struck a run that has a baseline: there is no goodput to show.",
            caption(known[known["failures"] > 0], tables["provenance"], ""),
        )
    rows = _prepared(with_disturbed(shown, tables, paired=True))
    quantities = _quantities(rows)
    text = caption(
        rows, tables["provenance"], _reading(rows, quantities), (*SYSTEM, *CHECKPOINT, "recovery")
    )
    panels = [panel for _, panel in rows.groupby("panel", sort=False)]
    names = list(rows["series"].unique())
    styles = dict(zip(names, cycle(zip(LINE_STYLES, MARKERS, strict=True)), strict=False))
    cells = [(panel, name) for panel in panels for name in quantities]
    titles = [panel["title"].iloc[0] for panel, _ in cells]
    figure, drawn = small_multiples(titles, PANEL_IN, text)
    farthest = farthest_of(rows, quantities)
    for axes, (panel, quantity) in zip(drawn, cells, strict=True):
        _draw_panel(axes, panel, quantity, styles)
        of_whole(axes.yaxis, farthest)
    legend(figure, _handles(styles) if len(names) > 1 else [])
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, each with `panel`, `title` and `series`.

    Strategies and intervals are in panels of their own where a panel would hold too many curves.
    """
    rows = ordered(with_hardware(shown), (*PANELS, "framework", *SERIES, "failures_per_hour"))
    inside = [name for name in SERIES if _varies_within(rows, name)]
    apart: list[str] = []
    while inside[1:] and rows.groupby(["framework", *PANELS, *apart])[inside].apply(_sets).max() > len(LINE_STYLES):  # fmt: skip
        apart.append(inside.pop())
    faced = faceted(rows, (*PANELS, *apart))
    names = in_words(rows, inside or ["recovery"], ", ")
    title = [
        " · ".join(part for part in (labels.name(framework), facet) if part)
        for framework, facet in zip(rows["framework"], faced["facet"], strict=True)
    ]
    return rows.assign(title=title, panel=title, series=names)


def _varies_within(rows: pd.DataFrame, name: str) -> bool:
    """Whether a framework has several values, or of formats a strategy of it: those of others do not tell two curves apart."""
    within = ["framework", "strategy"] if name == "format" else ["framework"]
    return bool((rows.groupby(within)[name].nunique() > 1).any())


def _sets(rows: pd.DataFrame) -> int:
    return len(rows.drop_duplicates())


def _quantities(rows: pd.DataFrame) -> list[str]:
    """Both, where any rank was missed; else they are the same."""
    fewer = (rows["ranks_used"] < rows["ranks"]).any()
    return [*QUANTITIES] if fewer else ["goodput"]


def _reading(rows: pd.DataFrame, quantities: list[str]) -> str:
    known = bool(rows["goodput_lo"].notna().any())
    return READING.format(
        intervals=INTERVALS if known else "",
        beyond=beyond(rows, quantities),
        of_ranks=OF_RANKS if len(quantities) > 1 else "",
    )


def _draw_panel(
    axes: Axes, panel: pd.DataFrame, quantity: str, styles: Mapping[str, tuple[LineStyle, str]]
) -> None:
    color = look(panel["framework"].iloc[0]).color
    for name, own in panel.groupby("series", sort=False):
        line_style, marker = styles[str(name)]
        curve = own.sort_values("failures_per_hour")
        drawn = np.array([has_name(each, DRAWN, FAULTS) for each in curve["history"]], bool)
        axes.vlines(
            curve["failures_per_hour"],
            100 * curve[f"{quantity}_lo"],
            100 * curve[f"{quantity}_hi"],
            colors=color,
            alpha=0.5,
            gid=f"{quantity} interval",
        )
        for rows, joined in ((curve[drawn], line_style), (curve[~drawn], "")):
            if rows.empty:
                continue
            axes.plot(
                rows["failures_per_hour"],
                100 * rows[quantity],
                color=color,
                linestyle=joined,
                marker=marker,
                label=str(name),
                gid=quantity,
            )
    mark_disturbed(axes, panel.assign(y=100 * panel[quantity]), "failures_per_hour", "y")
    axes.set_xlim(0, 1.05 * panel["failures_per_hour"].max())
    axes.set_xlabel("Failures per hour")
    axes.set_ylabel(QUANTITIES[quantity])


def _handles(styles: Mapping[str, tuple[LineStyle, str]]) -> list[Line2D]:
    return [
        Line2D([], [], color=INK, linestyle=line_style, marker=marker, label=name)
        for name, (line_style, marker) in styles.items()
    ]
