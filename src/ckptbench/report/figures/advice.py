"""The time that is lost against the interval: a panel for each training and number of GPUs, with the best interval and the one in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.decide.inputs import GIVEN
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.setups import of_most_ranks
from ckptbench.report.figures.kit.axes import durations
from ckptbench.report.figures.kit.decided import (
    LEAST,
    NONE,
    Looks,
    caption,
    curves_of,
    draw_band,
    foremost,
    handles,
    looks,
    lost,
)
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    nothing_to_show,
    small_multiples,
)

FIGURE = {
    "title": "How often to checkpoint",
    "tables": ("goodput_curves", "advice", "failure_rates", "decision_costs"),
    "of": "timed checkpoints",
    "about": "decision",
}
READING = (
    "part of the time that is lost to checkpoints and failures, against the time between two checkpoints, where failures come as in {rate}."
    " Bands are 95 % intervals of the costs and of the failure rate. Thick: loses at most a fifth more than the best interval,"
    " restarts aside, and at most one point"
)
KEY = (*SYSTEM, "strategy", "format", "recovery")
PANEL_IN = 1.4
ACROSS = 3
BEYOND = 10
"""A panel shows losses up to so many times the largest best one, and those of the intervals in use."""
MARKS: dict[str, dict[str, Any]] = {
    "best interval": {"marker": "o", "markersize": 4.5},
    "interval in use": {
        "marker": "X",
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    },
}
FINE: dict[str, Any] = {"linewidth": 3.5, "alpha": 0.35, "solid_capstyle": "butt"}


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `goodput_curves`, `advice`, `failure_rates` and `decision_costs`."""
    if tables["goodput_curves"].empty:
        return nothing_to_show(NONE)
    curves = of_most_ranks(curves_of(tables["goodput_curves"]))
    names = foremost(curves)
    named = curves.drop_duplicates([*KEY, "gpus"])[[*KEY, "gpus", "facet", "series"]]
    found = _found(tables["advice"], curves["rate"].iloc[0]).merge(named, on=[*KEY, "gpus"])
    styles = looks(names)
    shown = curves[curves["series"].isin(names)]
    panels = [own for _, of in shown.groupby("facet", sort=False) for _, own in of.groupby("gpus")]
    text = caption(READING, curves, len(names), "goodput_curves", tables)
    figure, drawn = small_multiples([_title(own) for own in panels], PANEL_IN, text, across=ACROSS)
    for axes, own in zip(drawn, panels, strict=True):
        here = found[found["series"].isin(names)].merge(own[["facet", "gpus"]].drop_duplicates())
        _draw_panel(axes, own, here, styles)
        axes.set_xlabel("Interval")
    marks = [entry(name, linestyle="", **look) for name, look in MARKS.items()]
    legend(figure, [*handles(styles), *marks, entry("fine", **FINE)])
    return figure


def _found(advice: pd.DataFrame, rate: str) -> pd.DataFrame:
    """Of the setups that have curves (others have no `p_best`): minutes and loss of the best interval and of the one in use."""
    rows = advice[advice["rate"].eq(rate) & advice["p_best"].notna()]
    return rows.assign(
        in_use_minutes=rows["best_minutes"] / rows["best_steps"] * rows["in_use_steps"],
        best_loss=(100 * (1 - rows["goodput"])).clip(lower=LEAST),
        in_use_loss=(100 * (1 - rows["goodput_in_use"])).clip(lower=LEAST),
    )


def _title(rows: pd.DataFrame) -> str:
    gpus, facet = int(rows["gpus"].iloc[0]), rows["facet"].iloc[0]
    if rows["projected"].all():
        known, unit = "projected", "GPU"
    elif (rows["framework"] == GIVEN).all():
        known, unit = "as given", "GPU"
    else:
        on_cpu = rows["measured_on"].eq("cpu").all()
        known, unit = "measured", "rank" if on_cpu else "GPU"
    title = f"{counted(gpus, unit)}, {known}"
    return f"{facet}\n{title}" if facet else title


def _draw_panel(axes: Axes, rows: pd.DataFrame, found: pd.DataFrame, styles: Looks) -> None:
    losses = [*found["best_loss"], *found["in_use_loss"].dropna()]
    minutes = [*found["best_minutes"], *found["in_use_minutes"].dropna()]
    most = max(BEYOND * found["best_loss"].max(), *losses)
    for name, look in styles.items():
        curve = rows[rows["series"] == name].sort_values("interval_minutes")
        if len(curve):
            _draw_curve(axes, curve, found[found["series"] == name], look)
    near = rows[rows["loss"] <= most]
    lost(axes, [*losses, *near["loss"]])
    durations(axes.xaxis, [*minutes, *near["interval_minutes"]])


def _draw_curve(
    axes: Axes, curve: pd.DataFrame, found: pd.DataFrame, look: Mapping[str, Any]
) -> None:
    color = look["color"]
    draw_band(axes, curve, "interval_minutes", color)
    minutes = curve["interval_minutes"]
    axes.plot(minutes, curve["loss"], **look)
    for row in records(found):
        fine = curve[minutes.between(row["fine_from_minutes"], row["fine_to_minutes"])]
        axes.plot(fine["interval_minutes"], fine["loss"], color=color, gid="fine", **FINE)
        for mark, which in zip(MARKS, ("best", "in_use"), strict=True):
            place = [row[f"{which}_minutes"]], [row[f"{which}_loss"]]
            axes.plot(*place, color=color, linestyle="", gid=mark, zorder=4, **MARKS[mark])
