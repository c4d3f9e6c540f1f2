"""How long one checkpoint blocks training: every checkpoint, and what the time goes into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from ckptbench.analysis.cost.stall import parts_of_stall, steady_or_all
from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.grouping import groups
from ckptbench.report.answer.setups import PANEL_COLUMNS, ROW_COLUMNS, prepared
from ckptbench.report.figures.kit.axes import logarithmic
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    BELOW,
    Panel,
    PaperFigure,
    entry,
    forest_plot,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.parts import (
    CAPTURE,
    COMMIT,
    SYNC,
    WAITS,
    WRITE,
    seen,
    stack,
)
from ckptbench.report.figures.kit.style import FAINT, INK, look

FIGURE = {
    "title": "What one checkpoint blocks",
    "tables": ("stall", "checkpoint_cost", "runs", "machine", "provenance"),
    "of": "undisturbed runs",
    "about": "cost",
}
NOTHING = "No timed run wrote a checkpoint, so there is no stall to show."
READING = (
    "left: how long each checkpoint blocks training, on its slowest rank (colour), and how long until every byte and the manifest are "
    "on stable storage (grey); means are those of table checkpoint_cost. Crosses: checkpoints before the steady state, which count only"
    " in rows without later ones. Hollow points: checkpoints during the warm-up, which do not count. Right: mean share of each part of "
    "the stall; training waits are those for the slowest rank, the update and the removal of an older version. If training continues "
    "after the capture, write and sync are not part of the stall. The total cost of a checkpoint is in figure overhead"
)
WHEN = STEADY, BEFORE, AT_START = "steady state", "before the steady state", "during the warm-up"
PARTS = {
    "capture_s": CAPTURE,
    "write_s": WRITE,
    "sync_s": SYNC,
    "commit_s": COMMIT,
    "wait_s": WAITS,
}
"""Parts of the stall by their column, in the order of time."""
WITH = {"checksum_s": "commit_s", "update_hold_s": "wait_s", "removal_hold_s": "wait_s"}
"""Columns of parts that are drawn as one with another."""
LANES = {"stall_s": -0.2, "durable_s": 0.2}
"""Columns of both times of a checkpoint, each with its place in the row of its setup."""
MEANS = {"stall_s": "mean_stall_s", "durable_s": "mean_durable_s"}
"""By them the columns of their means over a setup."""
SPREAD = 0.15
"""How far from the middle of its lane a point may lie."""
GOLDEN = (5**0.5 - 1) / 2


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `stall`, `checkpoint_cost` and `provenance`."""
    shown = tables["stall"]
    if shown.empty:
        return nothing_to_show(NOTHING)
    costs = tables["checkpoint_cost"][[*SETUP, *MEANS]].rename(columns=MEANS)
    known = with_disturbed(shown.merge(costs, on=list(SETUP), how="left"), tables)
    rows = prepared(known, (*ROW_COLUMNS, "recovery"))
    rows["when"] = np.select([rows["warmup"], ~rows["steady"]], [AT_START, BEFORE], STEADY)
    text = caption(rows, tables["provenance"], READING, (*PANEL_COLUMNS, *ROW_COLUMNS))
    figure, panels = forest_plot(
        rows,
        text,
        row_height_in=0.26,
        xlabels=["One checkpoint (s)", "Share (%)"],
        axes_widths=(3, 2),
    )
    for panel in panels:
        points, shares = panel.axes
        _draw_points(points, panel)
        stack(shares, _shares(panel.rows), PARTS)
        shares.set_xlim(0, 100)
        logarithmic(points.xaxis, rows[[*LANES]].to_numpy(float).ravel())
    legend(figure, _marks(rows, panels[0].framework))
    known = pd.concat([_shares(panel.rows) for panel in panels])
    legend(figure, [part.handle() for part in seen(PARTS, known / 100)], BELOW)
    return figure


def _draw_points(axes: Axes, panel: Panel) -> None:
    for group, rows in groups(panel.rows, ["y"]):
        # The golden ratio's multiples spread evenly however many there are, and are always the same.
        spread = SPREAD * (2 * (np.arange(len(rows)) * GOLDEN % 1) - 1)
        for column, lane in LANES.items():
            places = rows.assign(place=group["y"] + lane + spread)
            for when in WHEN:
                own = places[places["when"] == when]
                marks = _look(panel.framework, column, when)
                axes.plot(own[column], own["place"], gid=column, **marks)
            mean, y = rows[MEANS[column]].iloc[:1], group["y"] + lane
            axes.vlines(mean, y - 0.2, y + 0.2, colors=INK, zorder=3, gid=f"mean {column}")


def _look(framework: str, column: str, when: str) -> dict[str, Any]:
    own = look(framework)
    color, marker = (own.color, own.marker) if column == "stall_s" else (FAINT, "D")
    return {
        "color": color,
        "marker": "x" if when == BEFORE else marker,
        "markerfacecolor": "none" if when == AT_START else color,
        "linestyle": "",
        "markersize": 2.5,
        "markeredgewidth": 0.4,
        "alpha": 0.6,
    }


def _shares(rows: pd.DataFrame) -> pd.DataFrame:
    """In percent, of each row of a panel at its `y`."""
    timed = rows[~rows["warmup"]]
    counted = pd.concat([steady_or_all(of_setup) for _, of_setup in timed.groupby("y")])
    parts = parts_of_stall(counted).groupby(counted["y"]).mean()
    drawn = parts.T.groupby(lambda column: WITH.get(column, column)).sum().T
    return (100 * drawn.div(drawn.sum(axis=1), axis=0).fillna(0.0)).reset_index()


def _marks(rows: pd.DataFrame, framework: str) -> list[Artist]:
    """What each marker is that is drawn."""
    first, *others = (when for when in WHEN if (rows["when"] == when).any())
    names = {("stall_s", first): "stall", ("durable_s", first): "durable"}
    if first != STEADY:
        names = {key: f"{name}, {first}" for key, name in names.items()}
    names |= {("stall_s", when): when for when in others}
    return [
        *(entry(name, **_look(framework, *key)) for key, name in names.items()),
        entry("mean", marker="|", linestyle="", markersize=6),
    ]
