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
    Looks,
    caption,
    curves_of,
    foremost,
    handles,
    looks,
    lost,
)
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
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
    "fraction of the time lost to checkpoints and failures at the best interval, against the number of GPUs, with failures as in "
    "{rate}. Solid lines: known costs; dashed: projected. Vertical lines at both ends of a curve are its 95 % intervals, drawn side by "
    "side. Where two curves cross, the better setup changes"
)
MARKERS = "osD^vP"
"""Of as many curves as can be told apart. The table has the rest."""
APART = 0.012
"""The distance of two of these lines, as a share of the axis."""
FARTHEST = 3
"""Such a line makes the axis reach so many times as far down as the least loss, and no farther."""
PANEL_IN = 1.9


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `scale`, `failure_rates` and `decision_costs`."""
    if tables["scale"].empty:
        return nothing_to_show(NONE)
    shown = of_most_ranks(curves_of(tables["scale"]))
    own_looks = looks(foremost(shown, len(MARKERS))).items()
    styles: Looks = {
        name: {**own, "linestyle": SOLID, "marker": marker, "markersize": 4}
        for (name, own), marker in zip(own_looks, MARKERS, strict=False)
    }
    text = caption(READING, shown, len(styles), "scale", tables)
    drawn = shown[shown["series"].isin(list(styles))]
    panels = [of for _, of in drawn.groupby("facet", sort=False)]
    figure, grid = small_multiples([of["facet"].iloc[0] for of in panels], PANEL_IN, text)
    apart = (drawn["gpus"].max() / drawn["gpus"].min()) ** APART
    middle = (len(styles) - 1) / 2
    for axes, rows in zip(grid, panels, strict=True):
        for place, (name, own) in enumerate(styles.items()):
            curve = rows[rows["series"] == name].sort_values("gpus")
            if len(curve):
                _draw_curve(axes, curve, own, apart ** (place - middle))
        ends = rows[["loss_lo", "loss_hi"]].clip(rows["loss"].min() / FARTHEST, 100.0, axis=None)
        lost(axes, [*rows["loss"], *ends.to_numpy().ravel()])
        logarithmic(axes.xaxis, rows["gpus"])
        axes.set_xlabel("GPUs")
    legend(figure, handles(styles))
    return figure


def _draw_curve(axes: Axes, curve: pd.DataFrame, own: Mapping[str, Any], aside: float) -> None:
    ends = curve.iloc[[0, -1]]
    axes.vlines(ends["gpus"] * aside, ends["loss_lo"], ends["loss_hi"], colors=own["color"], gid="interval")  # fmt: skip
    known = curve[~curve["projected"]]
    beyond = curve[curve["projected"] | (curve["gpus"] == known["gpus"].max())]
    axes.plot(known["gpus"], known["loss"], gid="measured", **own)
    dashed = {**own, "linestyle": DASHED, "markevery": [len(beyond) - 1]}
    axes.plot(beyond["gpus"], beyond["loss"], gid="projected", **dashed)
