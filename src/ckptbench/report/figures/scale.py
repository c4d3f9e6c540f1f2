"""The time that is lost at the best interval, against the number of GPUs: what was measured solid, what is projected dashed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ckptbench.report.answer.setups import of_most_ranks
from ckptbench.report.figures.kit.axes import logarithmic
from ckptbench.report.figures.kit.decided import (
    NONE,
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
from ckptbench.report.figures.kit.style import DASHED, SOLID

FIGURE = {
    "title": "The best goodput against GPUs",
    "tables": ("scale", "failure_rates", "decision_costs"),
    "of": "timed checkpoints",
    "about": "decision",
}
READING = (
    "part of the time that is lost to checkpoints and failures at the best interval, against the number of GPUs, where failures come as in {rate}."
    " Bands are 95 % intervals. Where curves cross, another setup is the better one from there on"
)
KNOWN: dict[str, Any] = {"linestyle": SOLID, "marker": "o", "markersize": 4}
BEYOND: dict[str, Any] = {"linestyle": DASHED}
PANEL_IN = 1.9


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `scale`, `failure_rates` and `decision_costs`."""
    if tables["scale"].empty:
        return nothing_to_show(NONE)
    shown = of_most_ranks(curves_of(tables["scale"]))
    styles = {name: {**own, "linestyle": SOLID} for name, own in looks(foremost(shown)).items()}
    text = caption(READING, shown, len(styles), "scale", tables)
    drawn = shown[shown["series"].isin(list(styles))]
    panels = [of for _, of in drawn.groupby("facet", sort=False)]
    figure, grid = small_multiples([of["facet"].iloc[0] for of in panels], PANEL_IN, text)
    for axes, rows in zip(grid, panels, strict=True):
        for name, own in styles.items():
            curve = rows[rows["series"] == name].sort_values("gpus")
            if len(curve):
                _draw_curve(axes, curve, own["color"])
        lost(axes, rows["loss"])
        logarithmic(axes.xaxis, rows["gpus"])
        axes.set_xlabel("GPUs")
    kinds = {"costs known": KNOWN} | ({"projected": BEYOND} if drawn["projected"].any() else {})
    of_kinds = [entry(name, **own) for name, own in kinds.items()]
    legend(figure, [*handles(styles), *of_kinds])
    return figure


def _draw_curve(axes: Axes, curve: pd.DataFrame, color: str) -> None:
    draw_band(axes, curve, "gpus", color)
    known = curve[~curve["projected"]]
    beyond = curve[curve["projected"] | (curve["gpus"] == known["gpus"].max())]
    for rows, look, gid in ((known, KNOWN, "measured"), (beyond, BEYOND, "projected")):
        axes.plot(rows["gpus"], rows["loss"], color=color, gid=gid, **look)
