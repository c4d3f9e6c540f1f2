"""How often to checkpoint: for each setup the intervals that are fine, the best one and the one in use, and what these lose."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.decide.inputs import GIVEN
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.setups import of_most_ranks
from ckptbench.report.figures.kit.axes import durations, logarithmic
from ckptbench.report.figures.kit.decided import LEAST, NONE, caption, curves_of, foremost
from ckptbench.report.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    entry,
    folded,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.style import INK, PAGE_IN, look

FIGURE = {
    "title": "How often to checkpoint",
    "tables": ("advice", "goodput_curves", "failure_rates", "decision_costs"),
    "of": "timed checkpoints",
    "about": "decision",
}
READING = (
    "left: the time between two checkpoints. Bar: intervals that are fine, which lose at most a fifth more than the best one, restarts "
    "aside, and at most one percentage point; no bar if the best one loses more than half. Right: fraction of the time lost to "
    "checkpoints and failures, at the best interval and at the one in use, with failures as in {rate}. Thin lines are 95 % intervals,"
    " of the failure rate and of those costs that have one"
)
KEY = (*SYSTEM, "strategy", "format", "recovery", "gpus")
MOST = 8
"""How many rows a panel has. The table has the rest."""
ROW_IN = 0.17
FINE = 0.55
"""Height of the bar of intervals that are fine, as a part of its row."""
FINE_ALPHA = 0.35
MARKS = {"best": "o", "in_use": "X"}
NAMES = {"best": "best interval", "in_use": "interval in use"}
FARTHEST = 10
"""Intervals of what is drawn make an axis reach so many times as far as the values, and no farther."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `advice`, `goodput_curves`, `failure_rates` and `decision_costs`."""
    if tables["goodput_curves"].empty:
        return nothing_to_show(NONE)
    rows = of_most_ranks(curves_of(_found(tables)))
    names = foremost(rows, MOST)
    shown = rows[rows["series"].isin(names)]
    panels = [own for _, of in shown.groupby("facet", sort=False) for _, own in of.groupby("gpus")]
    text = caption(READING, rows, len(names), "advice", tables)
    titles = [_title(own) for own in panels]
    lines = [sum(label.count("\n") + 1 for label in own["series"].map(folded)) for own in panels]
    edges_in = [PANEL_EDGES_IN + LINE_IN * title.count("\n") for title in titles]
    height_in = ROW_IN * sum(lines) + sum(edges_in) + LINE_IN
    figure = PaperFigure(PAGE_IN, height_in, text)
    grid = figure.subplots(len(panels), 2, squeeze=False, height_ratios=lines, width_ratios=(3, 2))
    for (times, losses), own, title in zip(grid, panels, titles, strict=True):
        times.set_title(title)
        _draw_panel(times, losses, own.assign(y=range(len(own))))
        durations(times.xaxis, _reach(shown, "minutes"))
        logarithmic(losses.xaxis, _reach(shown, "loss"))
    for axes, name in zip(grid[-1], ("Interval", "Time lost (%)"), strict=True):
        axes.set_xlabel(name)
    marks = [entry(NAMES[name], linestyle="", marker=mark) for name, mark in MARKS.items()]
    legend(figure, [Patch(facecolor=INK, alpha=FINE_ALPHA, label="fine"), *marks])
    return figure


def _found(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The setups that have curves (others have no `p_best`), at the failure rate that was chosen: of both intervals minutes and loss."""
    advice, rate = tables["advice"], tables["goodput_curves"]["rate"].iloc[0]
    rows = advice[advice["rate"].eq(rate) & advice["p_best"].notna()]
    lost = {
        f"{which}_loss{end}": (100 * (1 - rows[f"{column}{of}"])).clip(lower=LEAST)
        for which, column in (("best", "goodput"), ("in_use", "goodput_in_use"))
        for end, of in (("", ""), ("_lo", "_hi"), ("_hi", "_lo"))
    }
    in_use = rows["best_minutes"] / rows["best_steps"] * rows["in_use_steps"]
    return rows.assign(in_use_minutes=in_use, **lost)


def _reach(rows: pd.DataFrame, quantity: str) -> list[float]:
    """The values, and the ends of their intervals as far as these may stretch an axis."""
    known = rows[[f"{which}_{quantity}" for which in MARKS]].to_numpy(float).ravel()
    ends = [f"best_{quantity}_lo", f"best_{quantity}_hi"]
    ends += ["fine_from_minutes", "fine_to_minutes"] if quantity == "minutes" else []
    values = pd.Series(known).dropna()
    least, most = values.min() / FARTHEST, values.max() * FARTHEST
    return [*values, *rows[ends].stack().clip(least, most)]


def _title(rows: pd.DataFrame) -> str:
    gpus, facet = int(rows["gpus"].iloc[0]), rows["facet"].iloc[0]
    if rows["projected"].all():
        known, unit = "projected", "GPU"
    elif (rows["framework"] == GIVEN).all():
        known, unit = "as given", "GPU"
    else:
        on_cpu = rows["measured_on"].eq("cpu").all()
        known, unit = "measured", "rank" if on_cpu else "GPU"
    title = f"{counted(gpus, unit)}, {known}"
    return f"{facet}\n{title}" if facet else title


def _draw_panel(times: Axes, losses: Axes, rows: pd.DataFrame) -> None:
    for row in records(rows):
        color, y = look(row["framework"]).color, row["y"]
        width = row["fine_to_minutes"] - row["fine_from_minutes"]
        if width >= 0:
            times.barh(y, width, FINE, row["fine_from_minutes"], color=color, alpha=FINE_ALPHA, gid="fine")  # fmt: skip
        for axes, quantity in ((times, "minutes"), (losses, "loss")):
            low, high = (row[f"best_{quantity}_{end}"] for end in ("lo", "hi"))
            axes.hlines(y, low, high, colors=color, linewidth=0.8, gid="best interval")
            for which, mark in MARKS.items():
                axes.plot(row[f"{which}_{quantity}"], y, mark, color=color, markeredgecolor="white", markeredgewidth=0.4, markersize=5, zorder=4, gid=which)  # fmt: skip
    for axes, names in ((times, list(rows["series"].map(folded))), (losses, [""] * len(rows))):
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), names)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
