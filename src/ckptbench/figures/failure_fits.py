"""The times between the failures of each log, with the exponential and the Weibull distribution that fit best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.analysis.tables.grouping import records
from ckptbench.decide.rate_tables import EXPONENTIAL, OBSERVED, WEIBULL
from ckptbench.figures.kit.panels import PaperFigure, legend, nothing_to_show, small_multiples
from ckptbench.figures.kit.style import DASHED, FAINT, INK, SOLID
from ckptbench.figures.kit.ticks import logarithmic

READING = (
    "Time at risk between two failures that is at most so long, in % of all; the last, which had not ended, counts as longer than it was seen."
    " A Weibull distribution below the exponential one on the right, and above it on the left, shows failures that cluster. In brackets: 95 % interval of the mean."
    " φ: how much more than at a constant rate the number of failures varies from window to window. The curves are a picture: no rate comes from them."
)
LINES: dict[str, dict[str, Any]] = {
    OBSERVED: {
        "label": "observed",
        "color": FAINT,
        "linewidth": 2.5,
        "drawstyle": "steps-post",
        "alpha": 0.7,
    },
    EXPONENTIAL: {"label": "exponential", "color": INK, "linestyle": DASHED, "linewidth": 1.0},
    WEIBULL: {"label": "Weibull", "color": INK, "linestyle": SOLID, "linewidth": 1.0},
}
PANEL_IN = 1.7


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `failure_rates` and `failure_fits`; a panel for each log."""
    rates = {rate["rate"]: rate for rate in records(tables["failure_rates"])}
    logs = list(tables["failure_fits"].groupby("rate"))
    if not logs:
        return nothing_to_show("No rate comes from a log of failures: there is no fit to show.", "")
    titles = [str(rates[name]["title"]) for name, _ in logs]
    figure, panels = small_multiples(titles, PANEL_IN, READING)
    for axes, (name, curves) in zip(panels, logs, strict=True):
        _draw_panel(axes, curves, rates[name])
    shown = {curve for _, curves in logs for curve in curves["curve"]}
    legend(figure, [Line2D([], [], **look) for name, look in LINES.items() if name in shown])
    return figure


def _draw_panel(axes: Axes, curves: pd.DataFrame, rate: Mapping[str, Any]) -> None:
    for name, look in LINES.items():
        own = curves[curves["curve"] == name]
        if len(own):
            axes.plot(own["gap_gpu_hours"], 100 * own["part"], gid=name, **look)
    logarithmic(axes.xaxis, list(curves["gap_gpu_hours"]))
    axes.set_ylim(0, 105)
    axes.set_xlabel("Between two failures (GPU-hours)")
    axes.set_ylabel("Gaps (%)")
    axes.text(0.03, 0.96, _found(rate), transform=axes.transAxes, va="top", gid="found", color=INK)


def _found(rate: Mapping[str, Any]) -> str:
    """What the log says, a line for each number."""
    mean, lo, hi = (rate[f"mean_gpu_hours{end}"] for end in ("", "_lo", "_hi"))
    return f"{rate['failures']} failures\nmean {mean:,.0f} GPU-hours\n[{lo:,.0f}, {hi:,.0f}]\nφ = {rate['overdispersion']:.2g}"
