"""Expected goodput against the interval: a curve for each strategy and recovery, with the best interval and the range that is as good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ckptbench.analysis.tables.grouping import records
from ckptbench.answer.labels import counted
from ckptbench.decide.inputs import GIVEN
from ckptbench.figures.kit.captions import capitalized_sentences
from ckptbench.figures.kit.decided import common, foremost, handles, looks, of_most_ranks, prepared
from ckptbench.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    folded,
    legend,
    nothing_to_show,
    paper_figure,
    side_by_side,
)
from ckptbench.figures.kit.style import PAGE_IN, LineStyle
from ckptbench.figures.kit.ticks import logarithmic, upper_part

READING = (
    "Expected useful part of the time against the time between two checkpoints, where failures come as in {rate}. Bands are 95 % intervals of the"
    " costs and of the failure rate. Points: the best interval; thick: at most a fifth more lost than there"
)
PROJECTED = (
    "Projected: a step, a checkpoint and a recovery are taken to cost what they do at the number whose costs are known, and failures to come in proportion"
    " to the GPUs"
)
PANEL_IN = 1.25
NONE = "No setup with checkpoints was timed: there is no decision to show."


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `goodput_curves`, `advice`, `failure_rates` and `decision_costs`."""
    if tables["goodput_curves"].empty:
        return nothing_to_show(NONE, "")
    curves = of_most_ranks(prepared(tables["goodput_curves"]))
    best = of_most_ranks(prepared(_chosen(tables["advice"], tables["goodput_curves"])))
    names = foremost(curves)
    styles = looks(names)
    lines = [own for _, own in curves.groupby("system", sort=False)]
    numbers = sorted(curves["gpus"].unique())
    text = _caption(curves, names, tables)
    titles = {own["system"].iloc[0]: folded(own["system"].iloc[0]) for own in lines}
    in_legend = side_by_side(handles(styles), PAGE_IN)
    height_in = (
        len(lines) * (PANEL_IN + LINE_IN + 1.6 * PANEL_EDGES_IN) + len(in_legend) * 1.4 * LINE_IN
    )
    figure = paper_figure(PAGE_IN, height_in, text)
    grid = figure.add_gridspec(len(lines), len(numbers))
    for line, own in enumerate(lines):
        system = own["system"].iloc[0]
        for column, gpus in enumerate(own_numbers := sorted(own["gpus"].unique())):
            axes = figure.add_subplot(grid[line, column])
            here = own[own["gpus"] == gpus]
            axes.set_title(_title(titles[system] if not column else "", here))
            _draw_panel(axes, here, best[(best["system"] == system) & (best["gpus"] == gpus)], styles)  # fmt: skip
            upper_part(axes.yaxis, 100 * own["goodput"].min())
            if not column:
                axes.set_ylabel("Goodput (%)")
            if line == len(lines) - 1 and column < len(own_numbers):
                axes.set_xlabel("Interval (min)")
    legend(figure, *in_legend)
    return figure


def _chosen(advice: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Of the rate and the setups that have curves: others have no `chance`."""
    rate: str = curves["rate"].iloc[0]
    return advice[advice["rate"].eq(rate) & advice["chance"].notna()]


def _title(system: str, rows: pd.DataFrame) -> str:
    gpus = int(rows["gpus"].iloc[0])
    if rows["projected"].iloc[0]:
        return f"{gpus:,} GPUs, projected"
    if (rows["framework"] == GIVEN).all():
        return f"{system}\n{counted(gpus, 'GPU')}, as given"
    return f"{system}\n{counted(gpus, 'rank')}, measured"


def _draw_panel(
    axes: Axes,
    rows: pd.DataFrame,
    best: pd.DataFrame,
    styles: Mapping[str, tuple[str, LineStyle]],
) -> None:
    for name, (color, line_style) in styles.items():
        curve = rows[rows["series"] == name].sort_values("interval_minutes")
        if curve.empty:
            continue
        minutes = curve["interval_minutes"]
        axes.fill_between(minutes, 100 * curve["goodput_lo"], 100 * curve["goodput_hi"], color=color, alpha=0.12, linewidth=0)  # fmt: skip
        axes.plot(minutes, 100 * curve["goodput"], color=color, linestyle=line_style, linewidth=1.0, gid=name)  # fmt: skip
        for found in records(best[best["series"] == name]):
            flat = curve[minutes.between(found["fine_from_minutes"], found["fine_to_minutes"])]
            axes.plot(flat["interval_minutes"], 100 * flat["goodput"], color=color, linewidth=3, alpha=0.35, gid="flat", solid_capstyle="butt")  # fmt: skip
            axes.plot([found["best_minutes"]], [100 * found["goodput"]], color=color, marker="o", markersize=4, gid="best")  # fmt: skip
    logarithmic(axes.xaxis, list(rows["interval_minutes"]))


def _caption(curves: pd.DataFrame, names: list[str], tables: Mapping[str, Any]) -> str:
    rates = tables["failure_rates"].set_index("rate")
    title = str(rates.loc[curves["rate"].iloc[0], "title"])
    left_out = curves["series"].nunique() - len(names)
    more = f"{left_out} more curves are in the table goodput_curves" if left_out else ""
    sources = list(dict.fromkeys(tables["decision_costs"]["source"]))
    projected = PROJECTED if curves["projected"].any() else ""
    return capitalized_sentences(
        [READING.format(rate=title), projected, more, common(curves), *sources]
    )
