"""How long a restart takes from the launch to its first step, and whether a cold load came from storage."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ckptbench.analysis.proof.restore import COLD, WARM
from ckptbench.matrix.registry import NOTHING
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    ROW_COLUMNS,
    prepared,
    with_hardware,
)
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    Panel,
    PaperFigure,
    forest_plot,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.parts import Part, seen, stack, write_beside
from ckptbench.report.figures.kit.style import BAND, DOTTED, FAINT, PART_COLORS, look

FIGURE = {
    "title": "How long a restart takes",
    "tables": ("restore", "runs", "machine", "provenance"),
    "of": "killed runs",
    "about": "restart",
}
READING = (
    "Left: medians over restarts (at least {fewest} each), on the rank that took longest; the number is the load. Before a cold load "
    "the checkpoint is evicted from the page cache. Right: bytes read from storage during the load on all nodes, by the kernel's "
    "counters, in percent of the checkpoint's size (median; whole pages are read, so small checkpoints pass 100): a cold load has at "
    "least {cold:.0f} % on every node, a warm one less than {warm:.0f} % on every node. In {doubtful} of {rows} rows (shaded) the "
    "counters do not confirm this for every load"
)
PARTS = {
    "launch_and_meet_s": Part("launch, meet", PART_COLORS[0]),
    "import_s": Part("import", PART_COLORS[1]),
    "build_s": Part("join, data, build", PART_COLORS[4]),
    "load_s": Part("load", PART_COLORS[2], "//////"),
    "first_step_s": Part("first step", PART_COLORS[5]),
}
"""Phases in their order."""
ROW = (*ROW_COLUMNS, "cache")
GROUPED = (*PANEL_COLUMNS, "measured_on", "accelerator", "framework", "strategy_name", *ROW)
BOUNDS = {"cold": 100 * COLD, "warm": 100 * WARM}
"""In percent of the checkpoint's size."""
ROOM = 1.45
"""The factor between the longest bar and the axis: the room for the numbers."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `restore` and `provenance`. Less state than a whole checkpoint, or none, takes less time, and is left out."""
    restarts = tables["restore"]
    shown = restarts[(restarts["omit"] == NOTHING) & (restarts["step"] > 0)]
    if shown.empty:
        return nothing_to_show("No run was restarted from a checkpoint, so there is no restart to show.")  # fmt: skip
    rows = medians_of(with_disturbed(shown, tables))
    fewest, doubtful = rows["restarts"].min(), (~rows["shown"]).sum()
    reading = READING.format(fewest=fewest, doubtful=doubtful, rows=len(rows), **BOUNDS)
    text = caption(rows, tables["provenance"], reading, (*PANEL_COLUMNS, *ROW_COLUMNS))
    figure, panels = forest_plot(
        rows, text, row_height_in=0.17, xlabels=["Restart (s)", "Read (%)"], axes_widths=(3, 1.4)
    )
    for panel in panels:
        phases, read = panel.axes
        _draw_phases(phases, panel, rows[rows["facet"] == panel.rows["facet"].iloc[0]])
        _draw_read(read, panel, max(100.0, rows["read_percent"].max()))
        for y in panel.rows.loc[~panel.rows["shown"], "y"]:
            for axes in panel.axes:
                axes.axhspan(y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0, gid="not shown")
    longest = rows[[*PARTS]].sum(axis=1).max()
    legend(figure, [part.handle() for part in seen(PARTS, rows[[*PARTS]] / longest)])
    return figure


def medians_of(restarts: pd.DataFrame) -> pd.DataFrame:
    """A row for the restarts of each setup, warm and cold: medians of its phases, and `shown`, whether the
    counters say of every load what it is called."""
    known = with_hardware(restarts).assign(
        launch_and_meet_s=restarts["launch_s"] + restarts["meet_s"],
        build_s=restarts["join_s"] + restarts["data_s"] + restarts["build_s"],
        read_percent=(100 * restarts["read_bytes"] / restarts["bytes"]).astype("float64"),
        shown=restarts["cold_shown"].fillna(False).astype(bool),
    )
    medians = {name: (name, "median") for name in (*PARTS, "read_percent")}
    rows = known.groupby(list(GROUPED), as_index=False).agg(
        **medians,
        shown=("shown", "all"),
        disturbed=("disturbed", "any"),
        restarts=("run", "size"),
    )
    return prepared(rows, ROW)


def _draw_phases(axes: Axes, panel: Panel, facet: pd.DataFrame) -> None:
    rows = panel.rows
    ends = stack(axes, rows, PARTS)
    loads = rows["load_s"].map("load {:.2g} s".format)
    write_beside(axes, zip(ends, rows["y"], strict=True), loads, "load")
    axes.set_xlim(0, ROOM * facet[list(PARTS)].sum(axis=1).max())


def _draw_read(axes: Axes, panel: Panel, most: float) -> None:
    rows, appearance = panel.rows, look(panel.framework)
    axes.vlines(list(BOUNDS.values()), *axes.get_ylim(), FAINT, linestyles=DOTTED, gid="bounds")
    known = rows[rows["read_percent"].notna()]
    axes.plot(known["read_percent"], known["y"], appearance.marker, color=appearance.color, gid="read")  # fmt: skip
    middle = axes.get_yaxis_transform()
    for y in rows.loc[rows["read_percent"].isna(), "y"]:
        axes.text(0.5, y, "not counted", transform=middle, ha="center", va="center")
    axes.set_xlim(-0.08 * most, 1.08 * most)
    axes.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
