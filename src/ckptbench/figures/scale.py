"""The best goodput against the number of GPUs: what was measured solid, what is projected dashed."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ckptbench.figures.advice import NONE, PROJECTED
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
from ckptbench.figures.kit.style import COLUMN_IN, DASHED, PAGE_IN, SOLID, LineStyle
from ckptbench.figures.kit.ticks import logarithmic, upper_part

READING = (
    "Expected useful part of the time at the best interval, against the number of GPUs, where failures come as in {rate}. Solid, with points:"
    " numbers whose costs are known; dashed: projected. Bands are 95 % intervals"
)
PANEL_IN = 1.7
ACROSS = 2


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """From the tables `scale`, `failure_rates` and `decision_costs`."""
    if tables["scale"].empty:
        return nothing_to_show(NONE, "")
    every = prepared(tables["scale"])
    # Beyond the most ranks that were measured a curve goes on from there; below it has the measured points alone.
    shown = pd.concat([of_most_ranks(every), every[~every["projected"]]]).drop_duplicates()
    names = foremost(of_most_ranks(every))
    styles = looks(names)
    panels = [own for _, own in shown.groupby("system", sort=False)]
    across = min(ACROSS, len(panels))
    lines = -(-len(panels) // across)
    titles = [folded(own["system"].iloc[0]) for own in panels]
    title_in = LINE_IN * max(title.count("\n") for title in titles)
    width_in = COLUMN_IN if across == 1 else PAGE_IN
    in_legend = side_by_side(handles(styles), width_in)
    height_in = (
        lines * (PANEL_IN + title_in + 1.6 * PANEL_EDGES_IN) + len(in_legend) * 1.4 * LINE_IN
    )
    figure = paper_figure(width_in, height_in, _caption(shown, names, tables))  # fmt: skip
    grid = figure.add_gridspec(lines, across)
    for place, own in enumerate(panels):
        axes = figure.add_subplot(grid[place // across, place % across])
        axes.set_title(titles[place])
        _draw_panel(axes, own, styles)
        upper_part(axes.yaxis, 100 * own["goodput_lo"].min())
        axes.set_ylabel("Goodput (%)")
        axes.set_xlabel("GPUs")
    legend(figure, *in_legend)
    return figure


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, styles: Mapping[str, tuple[str, LineStyle]]
) -> None:
    for name, (color, _) in styles.items():
        curve = rows[rows["series"] == name].sort_values("gpus")
        if curve.empty:
            continue
        axes.fill_between(curve["gpus"], 100 * curve["goodput_lo"], 100 * curve["goodput_hi"], color=color, alpha=0.12, linewidth=0)  # fmt: skip
        measured = curve[~curve["projected"]]
        beyond = curve[curve["projected"] | (curve["gpus"] == measured["gpus"].max())]
        for own, joined, marker, of in (
            (measured, SOLID, "o", "measured"),
            (beyond, DASHED, "", "projected"),
        ):
            axes.plot(own["gpus"], 100 * own["goodput"], color=color, linestyle=joined, marker=marker, markersize=4, linewidth=1.0, gid=of)  # fmt: skip
    logarithmic(axes.xaxis, list(rows["gpus"]))


def _caption(shown: pd.DataFrame, names: list[str], tables: Mapping[str, pd.DataFrame]) -> str:
    rates = tables["failure_rates"].set_index("rate")
    title = str(rates.loc[shown["rate"].iloc[0], "title"])
    left_out = shown["series"].nunique() - len(names)
    more = f"{left_out} more curves are in the table scale" if left_out else ""
    sources = list(dict.fromkeys(tables["decision_costs"]["source"]))
    projected = PROJECTED if shown["projected"].any() else ""
    return capitalized_sentences(
        [READING.format(rate=title), projected, more, common(shown), *sources]
    )
