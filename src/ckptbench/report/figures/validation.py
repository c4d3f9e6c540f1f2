"""Predicted and measured goodput, at the intervals that were measured under failures."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.report.answer.setups import PANEL_COLUMNS, ordered, with_hardware
from ckptbench.report.figures.kit.axes import goodput, logarithmic
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    nothing_to_show,
    small_multiples,
)
from ckptbench.report.figures.kit.series import in_series
from ckptbench.report.figures.kit.style import BAND, DASHED, look

FIGURE = {
    "title": "Predicted and measured goodput",
    "tables": ("validation", "provenance"),
    "of": "drawn failures",
}
NOTHING = "No drawn failures struck a setup whose costs other runs have measured: there is no prediction to show."
READING = (
    "Useful part of the time against the interval, under failures that really came. Points: measured, with 95 % intervals over repeats. Band: where 95 %"
    " of such measurements should lie, by the model, from costs that other runs have measured and the times at which the failures came. Yellow: the range that"
    " the model calls as good as the best. {holds} of {number} measured points lie in their predicted intervals"
)
SERIES = ("strategy", "format", "recovery", "history")
PANEL_IN = 1.5
ACROSS = 3


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `validation` and `provenance`; a panel for each framework, strategy and recovery."""
    if tables["validation"].empty:
        return nothing_to_show(NOTHING)
    order = (*PANEL_COLUMNS, "framework", *SERIES, "ranks", "interval_steps")
    known = ordered(with_hardware(tables["validation"]), order)
    rows = in_series(known, (*PANEL_COLUMNS, "ranks"), SERIES, 0)  # a panel each
    reading = READING.format(holds=int(rows["holds"].sum()), number=len(rows))
    text = caption(rows, tables["provenance"], reading, (*PANEL_COLUMNS, "ranks", *SERIES))
    panels = [own for _, own in rows.groupby("title", sort=False)]
    titles = [own["title"].iloc[0] for own in panels]
    figure, drawn = small_multiples(titles, PANEL_IN, text, across=ACROSS)
    ends = 100 * rows[["measured_hi", "predicted_hi"]].to_numpy(float).ravel()
    for axes, own in zip(drawn, panels, strict=True):
        _draw_panel(axes, own)
        goodput(axes.yaxis, 100 * rows["measured"], ends)
        axes.set_xlabel("Interval (steps)")
        axes.set_ylabel("Goodput (%)")
    legend(figure, _handles())
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    color = look(rows["framework"].iloc[0]).color
    steps = rows["interval_steps"]
    fine = rows.iloc[0][["fine_from_steps", "fine_to_steps"]].astype(float)
    axes.axvspan(*fine, color=BAND, gid="flat", zorder=0)
    low, middle, high, measured, measured_lo, measured_hi = (
        100 * rows[f"{name}{end}"]
        for name, ends in (("predicted", ("_lo", "", "_hi")), ("measured", ("", "_lo", "_hi")))
        for end in ends
    )
    axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(steps, middle, color=color, linestyle=DASHED, gid="predicted")
    axes.vlines(steps, measured_lo, measured_hi, colors=color, alpha=0.6, gid="measured interval")
    axes.plot(steps, measured, color=color, linestyle="", marker="o", gid="measured")
    logarithmic(axes.xaxis, [*steps, *fine.clip(steps.min(), steps.max())])


def _handles() -> list[Line2D | Patch]:
    return [
        entry("measured", linestyle="", marker="o"),
        entry("predicted", linestyle=DASHED),
        Patch(color=BAND, label="at most a fifth more lost than at best, by the model"),
    ]
