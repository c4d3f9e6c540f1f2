"""Throughput without checkpoints, and the cost of one checkpoint, against the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.report.answer import labels
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    SEPARATOR,
    faceted,
    ordered,
    per_framework,
    with_hardware,
)
from ckptbench.report.figures.kit.axes import logarithmic, measured_ranks
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    mark_disturbed,
    nothing_to_show,
    small_multiples,
)
from ckptbench.report.figures.kit.series import in_series
from ckptbench.report.figures.kit.style import (
    DASH_DOTTED,
    DOTTED,
    FAINT,
    LINE_STYLES,
    LineStyle,
    look,
)

FIGURE = {
    "title": "Throughput and cost against ranks",
    "tables": ("scaling", "checkpoint_cost", "runs", "machine", "provenance"),
    "of": "undisturbed runs",
    "needs": "three numbers of ranks",
    "about": "cost",
}
NOTHING = "No framework was measured with two numbers of ranks, so there is no scaling to show."
READING = (
    "Throughput without checkpoints, at a fixed batch size per rank. Ideal: proportional to the ranks, from the fewest measured. Cores "
    "allow: the limit where ranks share the cores of a machine, if each core does as much as with the fewest ranks. One checkpoint: "
    "filled points are the stall of the slowest rank, hollow points the time until all is on stable storage, means over repeats of the "
    "mean of a run; slower steps are in figure overhead. Vertical bars are 95 % intervals"
)
SERIES = ("interval", "format", "strategy")
MOST_SERIES = 4
"""As many curves, each of a stall and of a durable time, can be told apart in one panel."""
IDEALS = {"ideal": DOTTED, "cores allow": DASH_DOTTED}
"""Columns of what throughput should be, each with its line."""
ROUNDING = 1e-6
"""Shares by which the cores allow less than the ideal count as none below this."""
PANEL_IN = 1.3


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `scaling`, `checkpoint_cost` and `provenance`."""
    rates = _with_ideal(_prepared(tables["scaling"], tables, ()))
    costs = _prepared(tables["checkpoint_cost"], tables, SERIES)
    shown = pd.concat([frame for frame in (rates, costs) if len(frame)] or [rates])
    if not (shown.groupby(["framework", *PANEL_COLUMNS])["ranks"].nunique() > 1).any():
        return nothing_to_show(NOTHING)
    text = caption(shown, tables["provenance"], READING, (*PANEL_COLUMNS, *SERIES))
    of_rates = list(rates.groupby("facet", sort=False)) if len(rates) else []
    costs = in_series(costs, PANEL_COLUMNS, SERIES, MOST_SERIES) if len(costs) else costs
    of_costs = list(costs.groupby("title", sort=False)) if len(costs) else []
    titles = [
        SEPARATOR.join(["Throughput", str(facet)]) if facet else "Throughput"
        for facet, _ in of_rates
    ]
    titles += [f"One checkpoint{SEPARATOR}{title}" for title, _ in of_costs]
    figure, panels = small_multiples(titles, PANEL_IN, text)
    names = list(costs["series"].unique()) if len(costs) else []
    styles = {name: LINE_STYLES[place % len(LINE_STYLES)] for place, name in enumerate(names)}
    for axes, (_, own) in zip(panels[: len(of_rates)], of_rates, strict=True):
        _draw_throughput(axes, own)
        logarithmic(axes.yaxis, rates[["samples_per_s_lo", "samples_per_s_hi", "ideal"]].to_numpy(float).ravel())  # fmt: skip
    for axes, (_, own) in zip(panels[len(of_rates) :], of_costs, strict=True):
        _draw_costs(axes, own, styles)
        logarithmic(axes.yaxis, costs[["stall_s", "stall_s_lo", "stall_s_hi", "durable_s"]].to_numpy(float).ravel())  # fmt: skip
    for axes in panels:
        measured_ranks(axes.xaxis, shown["ranks"])
        axes.set_xlabel("Ranks")
    frameworks = [
        entry(labels.name(each), color=look(each).color, marker=look(each).marker)
        for each, _ in per_framework(shown)
    ]
    legend(figure, [*frameworks, *_handles(rates, styles)])
    return figure


def _prepared(
    frame: pd.DataFrame, tables: Mapping[str, pd.DataFrame], series: tuple[str, ...]
) -> pd.DataFrame:
    known = with_hardware(with_disturbed(frame, tables))
    return faceted(ordered(known, (*PANEL_COLUMNS, "framework", *series, "ranks"))) if len(known) else known  # fmt: skip


def _with_ideal(rates: pd.DataFrame) -> pd.DataFrame:
    """With `ideal`, what the fewest ranks promise, and `cores allow`, what the machine does where that is less."""
    if rates.empty:
        return rates
    of_system = [rates["facet"], rates["framework"]]
    fewest = rates.groupby(of_system)[["samples_per_s", "ranks"]].transform("first")
    ideal = fewest["samples_per_s"] * rates["ranks"] / fewest["ranks"]
    bounded = rates["allowed_samples_per_s"] < (1 - ROUNDING) * ideal
    allowed = rates["allowed_samples_per_s"].where(bounded.groupby(of_system).transform("any"))
    return rates.assign(**{"ideal": ideal, "cores allow": allowed.astype(float)})


def _draw_throughput(axes: Axes, facet: pd.DataFrame) -> None:
    for framework, rows in per_framework(facet):
        color, marker = look(framework).color, look(framework).marker
        for column, style in IDEALS.items():
            axes.plot(rows["ranks"], rows[column], linestyle=style, color=color, linewidth=0.8, gid=column)  # fmt: skip
        axes.plot(rows["ranks"], rows["samples_per_s"], color=color, marker=marker, gid="measured")
        axes.vlines(rows["ranks"], rows["samples_per_s_lo"], rows["samples_per_s_hi"], colors=color)
    mark_disturbed(axes, facet, "ranks", "samples_per_s")
    axes.set_ylabel("Samples/s")


def _draw_costs(axes: Axes, own: pd.DataFrame, styles: Mapping[str, LineStyle]) -> None:
    color, marker = look(own["framework"].iloc[0]).color, look(own["framework"].iloc[0]).marker
    for name, rows in own.groupby("series", sort=False):
        for quantity, face, size in (("durable_s", "white", 5.5), ("stall_s", color, 2.5)):
            axes.plot(
                rows["ranks"],
                rows[quantity],
                color=color,
                marker=marker,
                linestyle=styles[str(name)],
                markerfacecolor=face,
                markersize=size,
                gid=quantity,
            )
        axes.vlines(rows["ranks"], rows["stall_s_lo"], rows["stall_s_hi"], colors=color)
    mark_disturbed(axes, own, "ranks", "stall_s")
    axes.set_ylabel("One checkpoint (s)")


def _handles(rates: pd.DataFrame, styles: Mapping[str, LineStyle]) -> list[Line2D]:
    ideals = [
        entry(name, color=FAINT, linestyle=style, linewidth=0.8)
        for name, style in IDEALS.items()
        if name in rates and rates[name].notna().any()
    ]
    series = [entry(name, linestyle=style) for name, style in styles.items()]
    return [*ideals, *(series if len(series) > 1 else [])]
