"""How long one checkpoint blocks training: every checkpoint, and what the time goes into."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ckptbench.analysis.cost.stall import parts_of_stall, steady_or_all
from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.grouping import groups
from ckptbench.answer.setups import CHECKPOINT, SYSTEM, prepared
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.panels import Panel, forest, legend, nothing_to_show
from ckptbench.figures.kit.parts import (
    CAPTURE,
    CHECKSUM,
    COMMIT,
    RANKS_WAIT,
    REMOVAL,
    SAVE_WAITS,
    SYNC,
    UPDATE_WAITS,
    WRITE,
)
from ckptbench.figures.kit.style import INK, look
from ckptbench.figures.kit.ticks import logarithmic

READING = (
    "Left: a point for each checkpoint, slowest rank. Right: mean share of the parts of the stall"
)
BEHIND = "where the loop goes on after the capture, write and sync are behind training and no part of the stall"
WARMUP = "hollow points came during the warm-up and count neither for the mean nor for the parts"
MEAN = "the mean is that of the table checkpoint_cost: of each run, over runs, without the time in which the next save waited"
FIRST = "crosses are the first checkpoints of a run, before the steady state; they count only in rows without later ones"
PARTS = {
    "capture_s": CAPTURE,
    "write_s": WRITE,
    "sync_s": SYNC,
    "checksum_s": CHECKSUM,
    "commit_s": COMMIT,
    "wait_s": RANKS_WAIT,
    "update_hold_s": UPDATE_WAITS,
    "save_hold_s": SAVE_WAITS,
    "removal_hold_s": REMOVAL,
}
"""Parts of the stall by their column, in the order of time."""
MARK = "mean_s"
"""Column of the stall of one checkpoint of a setup."""
VISIBLE = 0.002
"""Share of a stall from which on a part can be seen."""
LEGEND_ACROSS = 3
SPREAD = 0.3
"""How far from the middle of its row a point may lie."""
GOLDEN = (5**0.5 - 1) / 2
BAR = 0.6


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `stall`, `checkpoint_cost` and `provenance`."""
    shown = tables["stall"]
    if shown.empty:
        text = caption(shown, tables["provenance"], "")
        return nothing_to_show(
            "No run that can be timed wrote a checkpoint: there is no stall to show.", text
        )
    costs = tables["checkpoint_cost"][[*SETUP, "stall_s"]]
    rows = prepared(
        shown.merge(costs.rename(columns={"stall_s": MARK}), on=list(SETUP), how="left")
    )
    text = caption(rows, tables["provenance"], _reading(rows), (*SYSTEM, *CHECKPOINT))
    figure, panels = forest(rows, text, pitch_in=0.17, axes_widths=(3, 2))
    for panel in panels:
        points, shares = panel.axes
        _draw_points(points, panel)
        _draw_shares(shares, panel.rows)
        logarithmic(points.xaxis, rows["stall_s"])
        if panel.is_lowest:
            points.set_xlabel("Stall (s)")
            shares.set_xlabel("Share (%)")
    legend(figure, *_legend(rows))
    return figure


def _reading(rows: pd.DataFrame) -> str:
    parts = [
        READING,
        MEAN,
        *([BEHIND] if not rows["blocking"].all() else []),
        *([FIRST] if _is_first(rows).any() else []),
        *([WARMUP] if rows["warmup"].any() else []),
    ]
    return "; ".join(parts)


def _is_first(rows: pd.DataFrame) -> pd.Series:
    """Those before the steady state, unless they came during the warm-up."""
    return ~rows["steady"] & ~rows["warmup"]


def _counted(rows: pd.DataFrame) -> pd.DataFrame:
    """The checkpoints of one setup of which mean and parts tell: those of the steady state, if each run has one."""
    return steady_or_all(rows[~rows["warmup"]])


def _draw_points(axes: Axes, panel: Panel) -> None:
    appearance = look(panel.framework)
    for group, rows in groups(panel.rows, ["y"]):
        y = group["y"]
        # The golden ratio's multiples spread evenly however many there are, and are always the same.
        offsets = SPREAD * (2 * (np.arange(len(rows)) * GOLDEN % 1) - 1)
        first, warmup = _is_first(rows).to_numpy(), rows["warmup"].to_numpy()
        for chosen, marker, faces in (
            (~first & ~warmup, appearance.marker, appearance.color),
            (first, "x", "none"),
            (warmup, appearance.marker, "none"),
        ):
            axes.plot(
                rows["stall_s"][chosen],
                (y + offsets)[chosen],
                marker,
                color=appearance.color,
                markerfacecolor=faces,
                markersize=2.5,
                markeredgewidth=0.4,
                alpha=0.6,
                gid="checkpoints",
            )
        axes.vlines(rows[MARK].iloc[:1], y - 0.42, y + 0.42, colors=INK, zorder=3, gid="mean")


def _draw_shares(axes: Axes, rows: pd.DataFrame) -> None:
    counted = pd.concat([_counted(of_setup) for _, of_setup in rows.groupby("y")])
    parts = parts_of_stall(counted).groupby(counted["y"]).mean()
    percent = 100 * parts.div(parts.sum(axis=1), axis=0).fillna(0.0)
    left = 0 * percent["write_s"]
    for column, part in PARTS.items():
        axes.barh(
            percent.index,
            percent[column],
            BAR,
            left,
            color=part.grey,
            edgecolor=INK,
            hatch=part.hatch,
            gid=column,
        )
        left = left + percent[column]
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100])


def _legend(rows: pd.DataFrame) -> list[list[Artist]]:
    """The mean, and the parts that can be seen in any stall."""
    shares = parts_of_stall(rows).div(rows["stall_s"], axis=0).max()
    handles: list[Artist] = [
        Line2D([], [], color=INK, marker="|", linestyle="", markersize=6, label="mean")
    ]
    handles += [part.handle() for column, part in PARTS.items() if shares[column] > VISIBLE]
    return [handles[i : i + LEGEND_ACROSS] for i in range(0, len(handles), LEGEND_ACROSS)]
