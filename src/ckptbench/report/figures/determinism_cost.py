"""How much longer training takes in deterministic mode."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.report.answer.setups import PANEL_COLUMNS, faceted, in_words, ordered, with_hardware
from ckptbench.report.figures.kit.axes import percent
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    draw_estimates,
    forest_plot,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.style import INK, look

FIGURE = {
    "title": "Cost of deterministic mode",
    "tables": ("determinism_cost", "runs", "machine", "provenance"),
    "of": "baselines",
    "needs": "several systems in both modes",
    "about": "restart",
}
NOTHING = "No setup without checkpoints was timed in both modes, so there is no cost of deterministic mode to show."
READING = (
    "Training time without checkpoints in deterministic mode against default mode, paired by repeat: 10 % is a tenth longer. Bars are "
    "95 % intervals; a system with one repeat borrows the spread of the others. {slower} of {known} intervals lie above zero"
)


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `determinism_cost` and `provenance`."""
    if tables["determinism_cost"].empty:
        return nothing_to_show(NOTHING)
    rows = _prepared(with_disturbed(tables["determinism_cost"], tables))
    known = rows["cost_lo"].dropna()
    reading = READING.format(slower=int((known > 0).sum()), known=len(known))
    text = caption(rows, tables["provenance"], reading, PANEL_COLUMNS)
    figure, panels = forest_plot(
        rows, text, row_height_in=0.15, xlabels=["Cost of deterministic mode (%)"]
    )
    values = 100 * rows[["cost", "cost_lo", "cost_hi"]].to_numpy(float).ravel()
    for panel in panels:
        (axes,) = panel.axes
        axes.axvline(0, color=INK, linewidth=0.5)
        appearance = look(panel.framework)
        draw_estimates(axes, panel.rows["y"], panel.rows, "cost", appearance, factor=100)
        percent(axes.xaxis, values)
    legend(figure, [])
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    known = with_hardware(shown)
    present = [column for column in (*PANEL_COLUMNS, "framework", "ranks") if column in known]
    rows = faceted(ordered(known, present))
    return rows.assign(label=in_words(rows, ["ranks"], ""))
