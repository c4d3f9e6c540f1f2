"""How much longer training takes in deterministic mode."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ckptbench.answer.setups import SYSTEM, faceted, in_words, ordered, with_hardware
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.disturbed import with_disturbed
from ckptbench.figures.kit.panels import Panel, PaperFigure, forest, legend, nothing_to_show
from ckptbench.figures.kit.style import INK, look
from ckptbench.figures.kit.ticks import LINEAR_PERCENT, is_wide, percent

READING = (
    "Training time without checkpoints in deterministic mode against default mode, paired by repeat:"
    " 10 % is a tenth longer. Bars are 95 % intervals"
)
SINGLE = "one repeat has the spread of the other systems"
WITHOUT = "without a repeat there is none"
LOGARITHMIC = f"the axis is logarithmic beyond {LINEAR_PERCENT} %"
NOTHING = "Nothing was timed in both modes without checkpoints: there is no cost of deterministic mode to show."
ENDS = ("cost_lo", "cost_hi")


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `determinism_cost` and `provenance`."""
    shown = tables["determinism_cost"]
    if shown.empty:
        return nothing_to_show(NOTHING, caption(shown, tables["provenance"], ""))
    rows = _prepared(with_disturbed(shown, tables))
    text = caption(rows, tables["provenance"], _reading(rows), SYSTEM)
    figure, panels = forest(rows, text, pitch_in=0.15)
    for panel in panels:
        _draw_panel(panel)
        percent(panel.axes[0].xaxis, _values_percent(rows))
    legend(figure)
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    known = with_hardware(shown)
    present = [column for column in (*SYSTEM, "framework", "ranks") if column in known]
    rows = faceted(ordered(known, present))
    return rows.assign(label=in_words(rows, ["ranks"], ""))


def _reading(rows: pd.DataFrame) -> str:
    """How to read the figure, and of how many systems the whole interval lies above zero."""
    known = rows[rows[list(ENDS)].notna().all(axis=1)]
    slower = int((known["cost_lo"] > 0).sum())
    parts = [
        READING,
        *([SINGLE] if (known["repeats"] == 1).any() else []),
        *([WITHOUT] if len(known) < len(rows) else []),
        *([f"{slower} of {len(known)} lie above zero"] if len(known) else []),
        *([LOGARITHMIC] if is_wide(_values_percent(rows)) else []),
    ]
    return "; ".join(parts)


def _draw_panel(panel: Panel) -> None:
    (axes,) = panel.axes
    rows, appearance = panel.rows, look(panel.framework)
    axes.axvline(0, color=INK, linewidth=0.5)
    axes.hlines(rows["y"], 100 * rows["cost_lo"], 100 * rows["cost_hi"], colors=appearance.color)
    axes.plot(100 * rows["cost"], rows["y"], appearance.marker, color=appearance.color, gid="cost")
    if panel.is_lowest:
        axes.set_xlabel("Cost of deterministic mode (%)")


def _values_percent(rows: pd.DataFrame) -> list[float]:
    values = 100 * rows[["cost", *ENDS]].to_numpy().ravel()
    return list(values[np.isfinite(values)])
