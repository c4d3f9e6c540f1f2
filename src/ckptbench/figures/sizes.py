"""What a checkpoint weighs in each format, next to the bytes that the state must have."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ckptbench.analysis.cost.sizes import SIZES_KEY
from ckptbench.analysis.tables.grouping import groups
from ckptbench.answer.labels import counted
from ckptbench.answer.setups import SYSTEM, faceted, in_words, labelled, ordered
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.panels import Panel, forest, legend, nothing_to_show
from ckptbench.figures.kit.style import GREYS, INK, look

READING = "Coloured bars are measured, grey ones the bytes that the state must have; the number is their ratio"
MERGED = "numbers of ranks whose sizes differ by less than 1 % share a row, which shows the largest"
PARTS = {
    "state_model_bytes": ("parameters and buffers", GREYS[0]),
    "state_optimizer_bytes": ("optimizer", GREYS[2]),
    "state_rest_bytes": ("state of the ranks", GREYS[4]),
}
SAME = 0.01
"""Sizes whose relative difference is smaller than this share a row."""
ROW = ("strategy", "format", "counts")
BAR = 0.36
UNITS = {1e9: "GB", 1e6: "MB", 1e3: "kB"}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `sizes` and `provenance`."""
    shown = tables["sizes"]
    if shown.empty:
        text = caption(shown, tables["provenance"], "")
        return nothing_to_show("No checkpoint was written: there is no size to show.", text)
    rows = _prepared(shown)
    merged = len(rows) < len(shown)
    reading = f"{READING}; {MERGED}" if merged else READING
    text = caption(rows, tables["provenance"], reading, (*SYSTEM, *ROW))
    figure, panels = forest(rows, text, pitch_in=0.29)
    largest = {
        group["facet"]: own[["bytes_max", "must_have"]].to_numpy().max()
        for group, own in groups(rows, ["facet"])
    }
    for panel in panels:
        _draw_panel(panel, largest[panel.rows["facet"].iloc[0]])
    legend(figure, _legend())
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows in order. Sizes that hardly depend on the number of ranks share a row."""
    known = shown.assign(must_have=shown[list(PARTS)].sum(axis=1))
    but_ranks = [column for column in SIZES_KEY if column != "ranks"]
    merged = pd.concat([_merged(group) for _, group in groups(known, but_ranks)])
    in_order = ordered(merged, ("model", "dataset", "framework", "strategy", "format", "ranks"))
    return labelled(faceted(in_order), ROW)


def _merged(group: pd.DataFrame) -> pd.DataFrame:
    """The rows of one format, with `counts`: the numbers of ranks that each stands for."""
    extent = group[["bytes", "must_have"]].agg(["min", "max"])
    if (extent.loc["max"] - extent.loc["min"] > SAME * extent.loc["min"]).any():
        return group.assign(counts=in_words(group, ["ranks"], ""))
    fewest, most = group["ranks"].min(), group["ranks"].max()
    counts = counted(most, "rank") if fewest == most else f"{fewest} to {most} ranks"
    return group.nlargest(1, "bytes").assign(counts=counts)


def _draw_panel(panel: Panel, largest_bytes: float) -> None:
    (axes,) = panel.axes
    unit, name = next(((u, n) for u, n in UNITS.items() if largest_bytes >= u), (1, "bytes"))
    _draw_measured(axes, panel, unit)
    _draw_must_have(axes, panel.rows, unit)
    ends = panel.rows[["bytes_max", "must_have"]].to_numpy().max(axis=1) / unit
    for y, ratio, end in zip(panel.rows["y"], panel.rows["ratio"], ends, strict=True):
        axes.annotate(
            f"{ratio:.2f}\N{MULTIPLICATION SIGN}",
            (end, y),
            (3, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_xlim(0, 1.2 * largest_bytes / unit)
    if panel.is_lowest:
        axes.set_xlabel(f"Checkpoint ({name})")  # short: panels are narrow


def _draw_measured(axes: Axes, panel: Panel, unit: float) -> None:
    rows = panel.rows
    y = rows["y"] - BAR / 2
    axes.barh(y, rows["bytes"] / unit, BAR, color=look(panel.framework).color, gid="measured")
    uneven = ~rows["constant"]
    axes.hlines(
        y[uneven], rows["bytes_min"][uneven] / unit, rows["bytes_max"][uneven] / unit, colors=INK
    )


def _draw_must_have(axes: Axes, rows: pd.DataFrame, unit: float) -> None:
    left = 0 * rows["must_have"]
    for part, (_, grey) in PARTS.items():
        axes.barh(
            rows["y"] + BAR / 2,
            rows[part] / unit,
            BAR,
            left=left,
            color=grey,
            edgecolor=INK,
            gid=part,
        )
        left = left + rows[part] / unit


def _legend() -> list[Artist]:
    return [Patch(facecolor=grey, edgecolor=INK, label=name) for name, grey in PARTS.values()]
