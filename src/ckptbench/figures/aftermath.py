"""The training loss of runs that failures struck, against time, beside that of the undisturbed run of the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ckptbench.analysis.cost.aftermath import FAILURE, STRUCK, UNDISTURBED
from ckptbench.figures.kit import labels
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    folded,
    legend,
    nothing_to_show,
    paper_figure,
)
from ckptbench.figures.kit.setups import (
    CHECKPOINT,
    SYSTEM,
    faceted,
    labelled,
    ordered,
    with_hardware,
)
from ckptbench.figures.kit.style import (
    COLUMN_IN,
    INK,
    LINE_STYLES,
    PAGE_IN,
    SOLID,
    LineStyle,
    look,
)

READING = (
    "Mean loss of the last {window} steps on one rank, against the time since training began. Thick: undisturbed, thin: struck by failures,"
    " which the marks below show{rows}; a gap is time without a step. Steps that are done again show their loss again. Of each setup"
    " the repeat with the most failures"
)
ROWS = ", a row for each recovery in the order of the legend, the first lowest"
ROW = (*CHECKPOINT, "history")
LINES = ((UNDISTURBED, 3.5, 0.35), (STRUCK, 0.9, 1.0))
"""Both runs, each with the width of its line in points and its opacity: they coincide until the first failure."""
Styles = Mapping[str, LineStyle]
"""By recovery."""
IN_LEGEND = 4
"""How many lines stand side by side in the legend."""
PANEL_IN = 1.1
PARTS = 10
"""The loss is averaged over a tenth of an epoch, so that the noise of single batches does not hide the curve."""
USUAL_STEPS = 4
"""Steps that are further apart than so many usual ones have a gap between them."""
MARK = 0.08
"""Height of the mark of a failure, as a part of the panel."""
BETWEEN_MARKS = 0.02
"""Between the marks of two recoveries."""


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `aftermath` and `provenance`."""
    known = tables["aftermath"]
    if known.empty:
        return nothing_to_show(
            "No failure struck a run: there is no aftermath to show.",
            caption(known, tables["provenance"], ""),
        )
    shown = _prepared(known)
    styles = dict(zip(shown["recovery"].unique(), cycle(LINE_STYLES), strict=False))
    window = max(2, int(shown["steps_per_epoch"].max()) // PARTS)
    reading = READING.format(window=window, rows=ROWS if len(styles) > 1 else "")
    text = caption(shown, tables["provenance"], reading, (*SYSTEM, *ROW, "recovery"))
    panels = [panel for _, panel in shown.groupby(["framework", "facet", "label"], sort=False)]
    across = 1 if len(panels) == 1 else 2
    lines = -(-len(panels) // across)
    titles = [folded(_title(panel.iloc[0])) for panel in panels]
    title_in = LINE_IN * max(title.count("\n") for title in titles)
    legend_in = LINE_IN * (1 + len(_legend(styles)))
    height_in = lines * (PANEL_IN + title_in + 1.6 * PANEL_EDGES_IN) + legend_in
    figure = paper_figure(COLUMN_IN if across == 1 else PAGE_IN, height_in, text)
    grid = figure.add_gridspec(lines, across)
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(grid[place // across, place % across])
        axes.set_title(titles[place])
        _draw_panel(axes, panel, known, window, styles)
    legend(figure, *_legend(styles))
    return figure


def _prepared(known: pd.DataFrame) -> pd.DataFrame:
    """A row for each run that failures struck, in the order of panels and recoveries, with `facet` and `label`."""
    runs = with_hardware(known.drop_duplicates("run"))
    return labelled(faceted(ordered(runs, (*SYSTEM, "framework", *ROW, "recovery"))), ROW)


def _title(row: pd.Series) -> str:
    framework = labels.name(row["framework"])
    parts = [framework, *([row["facet"]] if row["facet"] else []), row["label"]]
    return " · ".join(parts)


def _draw_panel(
    axes: Axes, panel: pd.DataFrame, known: pd.DataFrame, window: int, styles: Styles
) -> None:
    color = look(panel["framework"].iloc[0]).color
    drawn: list[list[float]] = []
    for run, recovery in zip(panel["run"], panel["recovery"], strict=True):
        own = known[known["run"] == run]
        for what, linewidth, alpha in LINES:
            steps = own[own["what"] == what]
            if what == UNDISTURBED:
                if steps["second"].tolist() in drawn:  # recoveries may share it
                    continue
                drawn.append(steps["second"].tolist())
            line_style = styles[recovery] if what == STRUCK else SOLID
            line = {"linewidth": linewidth, "linestyle": line_style, "alpha": alpha, "gid": what}
            _draw_curve(axes, steps, window, color=color, **line)
        low = list(styles).index(recovery) * (MARK + BETWEEN_MARKS)
        axes.vlines(
            own.loc[own["what"] == FAILURE, "second"],
            low,
            low + MARK,
            colors=INK,
            transform=axes.get_xaxis_transform(),
            gid="failures",
        )
    axes.set_xlim(0, None)
    axes.set_xlabel("Time (s)")
    axes.set_ylabel("Training loss")


def _draw_curve(
    axes: Axes,
    steps: pd.DataFrame,
    window: int,
    *,
    color: str,
    **line: Any,
) -> None:
    """Steps far apart from one another are not joined."""
    if steps.empty:
        return
    apart = steps["second"].diff()
    gaps = apart > USUAL_STEPS * apart.median()
    mean = steps["loss"].rolling(window, min_periods=1).mean()
    axes.plot(steps["second"].where(~gaps), mean, color=color, **line)


def _legend(styles: Styles) -> list[list[Line2D]]:
    (undisturbed, wide, faint), (struck, narrow, alpha) = LINES
    thick = Line2D([], [], color=INK, linewidth=wide, alpha=faint, label=undisturbed)
    mark = Line2D([], [], color=INK, linestyle="", marker="|", label=FAILURE)
    names = {recovery: labels.recovery(recovery) if len(styles) > 1 else struck for recovery in styles}  # fmt: skip
    lines = [
        Line2D(
            [], [], color=INK, linewidth=narrow, alpha=alpha, linestyle=style, label=names[recovery]
        )
        for recovery, style in styles.items()
    ]
    every = [thick, *lines, mark]
    return [every[first : first + IN_LEGEND] for first in range(0, len(every), IN_LEGEND)]
