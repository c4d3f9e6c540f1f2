"""The training loss of runs that failures struck, against time, beside that of the undisturbed run of the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ckptbench.analysis.cost.aftermath import FAILURE, STRUCK, UNDISTURBED
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    ROW_COLUMNS,
    SEPARATOR,
    in_words,
    ordered,
    separating,
    varying,
    with_hardware,
)
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    nothing_to_show,
    small_multiples,
)
from ckptbench.report.figures.kit.style import INK, look

FIGURE = {
    "title": "Training after failures",
    "tables": ("aftermath", "provenance"),
    "of": "struck runs",
}
READING = (
    "Mean loss of the last {window} steps on one rank, against the time since training began. Thick: the undisturbed run of the same seed, thin: struck by"
    " failures, which the marks below show; a gap is time without a step. Steps that are done again show their loss again. Of each setup the repeat with the"
    " most failures"
)
ROW = (*ROW_COLUMNS, "history", "recovery")
LINES: dict[str, dict[str, Any]] = {
    UNDISTURBED: {"linewidth": 3.5, "alpha": 0.35},
    STRUCK: {"linewidth": 0.9},
}
"""Both runs: they coincide until the first failure."""
ACROSS = 3
PANEL_IN = 1.1
PARTS = 10
"""The loss is averaged over a tenth of an epoch, so that the noise of single batches does not hide the curve."""
SLOW_STEPS = 4
"""Steps that are further apart than so many slow ones have a gap between them."""
SLOW = 0.9
"""A step is slow that takes longer than so many of all: with fewer ranks it may be many times as fast as with all."""
MARK = 0.08
"""Height of the mark of a failure, as a part of the panel."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `aftermath` and `provenance`; a panel for each run. Those that differ in their recovery alone share their axes."""
    known = tables["aftermath"]
    if known.empty:
        return nothing_to_show("No failure struck a run: there is no aftermath to show.")
    runs = _prepared(known)
    window = max(2, int(runs["steps_per_epoch"].max()) // PARTS)
    reading = READING.format(window=window)
    text = caption(runs, tables["provenance"], reading, (*PANEL_COLUMNS, *ROW))
    figure, panels = small_multiples(list(runs["title"]), PANEL_IN, text, across=ACROSS)
    first: dict[str, Axes] = {}
    for axes, run, framework, alike in zip(
        panels, runs["run"], runs["framework"], runs["alike"], strict=True
    ):
        if alike in first:
            axes.sharex(first[alike])
            axes.sharey(first[alike])
        first.setdefault(alike, axes)
        _draw_panel(axes, known[known["run"] == run], window, look(framework).color)
    for axes in panels:
        axes.set_xlim(0, None)  # only now that every panel which shares the axis is drawn
    handles = [entry(what, **line) for what, line in LINES.items()]
    legend(figure, [*handles, entry(FAILURE, linestyle="", marker="|")])
    return figure


def _prepared(known: pd.DataFrame) -> pd.DataFrame:
    """A row for each struck run, in order, with its `title`, and `alike`: the same but for the recovery."""
    order = (*PANEL_COLUMNS, "framework", *ROW)
    runs = ordered(with_hardware(known.drop_duplicates("run")), order)
    names = ["framework", *separating(runs, PANEL_COLUMNS), *varying(runs, ROW)]
    alike = [name for name in names if name != "recovery"]
    return runs.assign(
        title=in_words(runs, names, SEPARATOR), alike=in_words(runs, alike, SEPARATOR)
    )


def _draw_panel(axes: Axes, rows: pd.DataFrame, window: int, color: str) -> None:
    for what, line in LINES.items():
        steps = rows[rows["what"] == what]
        apart = steps["second"].diff()
        seconds = steps["second"].where(~(apart > SLOW_STEPS * apart.quantile(SLOW)))
        mean = steps["loss"].rolling(window, min_periods=1).mean()
        axes.plot(seconds, mean, color=color, gid=what, **line)
    failures = rows.loc[rows["what"] == FAILURE, "second"]
    foot = axes.get_xaxis_transform()
    axes.vlines(failures, 0, MARK, colors=INK, transform=foot, gid="failures")
    axes.set_xlabel("Time (s)")
    axes.set_ylabel("Training loss")
