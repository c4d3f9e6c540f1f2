"""Predicted and measured goodput, at the intervals that were measured under failures."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.answer.setups import SYSTEM
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.decided import in_panels
from ckptbench.figures.kit.panels import PaperFigure, legend, nothing_to_show, small_multiples
from ckptbench.figures.kit.style import BAND, DASHED, INK, look
from ckptbench.figures.kit.ticks import logarithmic, of_whole, reach

READING = (
    "Useful part of the time against the interval, under failures that really came. Points: measured, with 95 % intervals over repeats. Band: where 95 %"
    " of such measurements should lie, by the model, from costs that other runs have measured and the times at which the failures came. Yellow: the range that"
    " the model calls as good as the best. {holds} of {number} measured points lie in their predicted intervals"
)
PANEL_IN = 1.5
ACROSS = 3


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `validation` and `provenance`; a panel for each framework, strategy and recovery."""
    known = tables["validation"]
    if known.empty:
        return nothing_to_show(
            "No drawn failures struck a setup whose costs other runs have measured: there is no prediction to show.",
            caption(known, tables["provenance"], ""),
        )
    rows = in_panels(known)
    reading = READING.format(holds=int(rows["holds"].sum()), number=len(rows))
    text = caption(rows, tables["provenance"], reading, (*SYSTEM, "ranks", "history"))
    panels = [own for _, own in rows.groupby("panel", sort=False)]
    titles = [own["panel"].iloc[0] for own in panels]
    figure, drawn = small_multiples(titles, PANEL_IN, text, across=ACROSS)
    shown = 100 * rows[["measured", "measured_hi", "predicted_hi"]]
    farthest = reach(shown["measured"], shown[["measured_hi", "predicted_hi"]].to_numpy().ravel())
    for axes, own in zip(drawn, panels, strict=True):
        _draw_panel(axes, own.sort_values("interval_steps"))
        of_whole(axes.yaxis, farthest)
        axes.set_xlabel("Interval (steps)")
        axes.set_ylabel("Goodput (%)")
    legend(figure, _handles())
    return figure


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    color = look(rows["framework"].iloc[0]).color
    steps = rows["interval_steps"]
    first = rows.iloc[0]
    axes.axvspan(first["fine_from_steps"], first["fine_to_steps"], color=BAND, gid="flat", zorder=0)
    axes.fill_between(steps, 100 * rows["predicted_lo"], 100 * rows["predicted_hi"], color=color, alpha=0.2, linewidth=0)  # fmt: skip
    axes.plot(steps, 100 * rows["predicted"], color=color, linestyle=DASHED, gid="predicted")
    known = rows[rows["measured_lo"].notna()]
    axes.vlines(known["interval_steps"], 100 * known["measured_lo"], 100 * known["measured_hi"], colors=color, alpha=0.6, gid="measured interval")  # fmt: skip
    axes.plot(steps, 100 * rows["measured"], color=color, linestyle="", marker="o", gid="measured")
    ends = [first["fine_from_steps"], first["fine_to_steps"]]
    within = [min(max(end, steps.min()), steps.max()) for end in ends]
    logarithmic(axes.xaxis, [*steps, *within])


def _handles() -> list[Line2D | Patch]:
    return [
        Line2D([], [], color=INK, linestyle="", marker="o", label="measured"),
        Line2D([], [], color=INK, linestyle=DASHED, label="predicted"),
        Patch(color=BAND, label="at most a fifth more lost than at best, by the model"),
    ]
