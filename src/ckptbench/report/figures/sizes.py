"""The size of a checkpoint in each format, below the bytes that the state must have."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from ckptbench.analysis.cost.sizes import SIZES_KEY
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.quantities import more, size
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    SEPARATOR,
    faceted,
    in_words,
    ordered,
    varying,
)
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    folded,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.parts import BAR, Part, seen, stack, write_beside
from ckptbench.report.figures.kit.style import COLUMN_IN, GREYS, INK, PAGE_IN, look

FIGURE = {
    "title": "Size of a checkpoint",
    "tables": ("sizes", "provenance"),
    "of": "undisturbed runs",
    "about": "size",
}
READING = (
    "size of a checkpoint on storage (colour), and above it the minimum size of the state (grey): parameters, the optimizer's momentum "
    "or first and second moments, and each rank's random states and statistics. The number is what a format adds to that minimum, or "
    "saves; 1 MB is 1,000,000 bytes. Thin lines reach from the smallest version to the largest. Numbers of ranks with sizes within 1 % "
    "share a row, which shows the largest"
)
PARTS = {
    "state_model_bytes": Part("parameters", GREYS[1]),
    "first": Part("momentum or first moments", GREYS[3], "//////"),
    "state_second_moments_bytes": Part("second moments", GREYS[2], "\\\\\\\\\\\\"),
    "state_rest_bytes": Part("state of the ranks", GREYS[5], "......"),
}
SAME = 0.01
"""Sizes whose relative difference is smaller than this share a row."""
ROW = ("framework", "strategy", "format", "counts")
ROW_IN = 0.17
ROOM = 1.75
"""The factor between the longest bar and the axis: the room for the numbers."""
LABEL_LETTERS = 26
"""Labels of rows that are longer need a page."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `sizes` and `provenance`; a panel for each model and dataset."""
    if tables["sizes"].empty:
        return nothing_to_show("No checkpoint was written, so there is no size to show.")
    rows = _prepared(tables["sizes"])
    text = caption(rows, tables["provenance"], READING, (*PANEL_COLUMNS, *ROW))
    panels = [own for _, own in rows.groupby("facet", sort=False)]
    heights = [len(own) + own["must_have"].nunique() for own in panels]
    height_in = ROW_IN * sum(heights) + 1.5 * PANEL_EDGES_IN * len(panels) + LINE_IN
    longest = max(len(line) for label in rows["label"] for line in label.split("\n"))
    width_in = COLUMN_IN if longest <= LABEL_LETTERS else PAGE_IN
    figure = PaperFigure(width_in, height_in, text)
    grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for axes, own in zip(grid, panels, strict=True):
        axes.set_title(own["facet"].iloc[0])
        _draw_panel(axes, own)
    grid[-1].set_xlabel("Size of a checkpoint")
    legend(figure, [part.handle() for part in seen(PARTS, rows[[*PARTS]].div(rows["bytes"].max()))])
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, with `facet` and `label`. Sizes that hardly depend on the number of ranks share a row."""
    split = shown.assign(first=shown["state_optimizer_bytes"] - shown["state_second_moments_bytes"])
    known = split.assign(must_have=split[list(PARTS)].sum(axis=1))
    but_ranks = [column for column in SIZES_KEY if column != "ranks"]
    merged = pd.concat([_merged(group) for _, group in groups(known, but_ranks)])
    rows = ordered(merged, ("model", "dataset", "framework", "strategy", "format", "ranks"))
    label = in_words(rows, varying(rows, ROW) or ["format"], SEPARATOR)
    return faceted(rows).assign(label=label.map(folded))


def _merged(group: pd.DataFrame) -> pd.DataFrame:
    """The rows of one format, with `counts`: the numbers of ranks that each stands for."""
    extent = group[["bytes", "must_have"]].agg(["min", "max"])
    if (extent.loc["max"] - extent.loc["min"] > SAME * extent.loc["min"]).any():
        return group.assign(counts=in_words(group, ["ranks"], ""))
    fewest, most = group["ranks"].min(), group["ranks"].max()
    counts = counted(most, "rank") if fewest == most else f"{fewest} to {most} ranks"
    return group.nlargest(1, "bytes").assign(counts=counts)


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    """What must be, once for all formats of which it hardly differs, and below it what these weigh."""
    names: list[str] = []
    must_have = 0.0
    for row in records(rows):
        if abs(must_have - row["must_have"]) > SAME * must_have:
            must_have = row["must_have"]
            stack(axes, pd.DataFrame([{**row, "y": len(names)}]), PARTS)
            write_beside(axes, [(must_have, len(names))], [size(must_have)], "words")
            names.append("must have")
        y = len(names)
        axes.barh(y, row["bytes"], BAR, color=look(row["framework"]).color, gid="measured")
        if not row["constant"]:
            axes.hlines(y, row["bytes_min"], row["bytes_max"], colors=INK)
        words = f"{size(row['bytes'])}, {more(row['ratio'])}"
        write_beside(axes, [(row["bytes_max"], y)], [words], "words")
        names.append(row["label"])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, ROOM * rows[["bytes_max", "must_have"]].to_numpy().max())
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter("B"))
