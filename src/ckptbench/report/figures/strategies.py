"""What a checkpoint of each strategy costs: stall, slowdown, durable, overhead and memory side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.report.answer.setups import PANEL_COLUMNS, ROW_COLUMNS, prepared
from ckptbench.report.figures.kit.axes import linear, logarithmic, percent
from ckptbench.report.figures.kit.captions import caption, continued_in_words
from ckptbench.report.figures.kit.disturbed import with_disturbed
from ckptbench.report.figures.kit.panels import (
    Panel,
    PaperFigure,
    draw_estimates,
    entry,
    forest_plot,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.style import FAINT, INK, look

FIGURE = {
    "title": "What a checkpoint of each strategy costs",
    "tables": ("strategies", "runs", "machine", "provenance"),
    "of": "timed checkpoints",
    "needs": "several strategies",
    "about": "cost",
}
NOTHING = "No timed run wrote a checkpoint, so there is no strategy to show."
READING = (
    "points are estimates, bars their 95 % intervals; a bar at the edge of its panel continues beyond it, and a row without a point has"
    " no estimate. Overhead, the number to quote, is the total cost of a strategy at the interval of the row; it orders rows of the "
    "same ranks and interval. Of one checkpoint: stall, how long training is blocked; slowdown, the extra time of steps during a "
    "background write; durable, the time until it survives a power cut (checkpoints at the level shared); memory, the peak above that "
    "of the baseline"
)
TORN = "torn: a version was not the state of its step"
UNCOMPARED = "no version was compared with the state of its step"
ALONE = "grey: no interval, so do not quote it (an overhead needs two repeats)"
FARTHEST = 3
"""An axis goes so many times as far as its largest estimate, and no further: intervals of few runs can be far wider."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """A column of panels: the column of the table, its name on the axis, and the factor between the two."""

    column: str
    label: str
    factor: float = 1.0
    is_logarithmic: bool = False


MEASURES = (
    _Measure("overhead", "Overhead (%)", factor=100.0),
    _Measure("stall_s", "Stall (s)", is_logarithmic=True),
    _Measure("slowdown_s", "Slowdown (s)"),
    _Measure("durable_s", "Durable (s)", is_logarithmic=True),
    _Measure("memory_bytes", "Memory (MB)", factor=1e-6),
)


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `strategies` and `provenance`."""
    shown = tables["strategies"]
    measures = [measure for measure in MEASURES if shown[measure.column].notna().any()]
    interrupted = continued_in_words(tables["provenance"])
    if not measures:
        return nothing_to_show(NOTHING, f"{NOTHING} {interrupted}")
    known = with_disturbed(shown, tables, paired=True)
    rows = _marked(prepared(known, (*ROW_COLUMNS, "recovery")))
    alone = any(_has_no_interval(rows, measure).any() for measure in measures)
    reading = _reading(rows, interrupted, alone=alone)
    text = caption(rows, tables["provenance"], reading, (*PANEL_COLUMNS, *ROW_COLUMNS))
    names = [measure.label for measure in measures]
    widths = [1] * len(measures)
    figure, panels = forest_plot(
        rows, text, row_height_in=0.15, xlabels=names, axes_widths=widths, ranked_by="overhead"
    )
    for panel in panels:
        for axes, measure in zip(panel.axes, measures, strict=True):
            _draw_measure(axes, panel, measure)
            _set_axis(axes, rows, measure)
    legend(figure, _legend(alone, look(panels[0].framework).marker))
    return figure


def _marked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, torn ones so named."""
    torn = _is_torn(rows)
    return rows.assign(label=rows["label"].mask(torn, rows["label"] + " (torn)"))


def _is_torn(rows: pd.DataFrame) -> pd.Series:
    return rows["consistent"].eq(False).fillna(False).astype(bool)


def _legend(alone: bool, marker: str) -> list[Line2D]:
    handles = [entry("estimate and interval", marker=marker)]
    if alone:
        handles.append(entry("grey: no interval", marker=marker, linestyle="", color=FAINT))
    return handles


def _reading(rows: pd.DataFrame, interrupted: str, *, alone: bool) -> str:
    parts = [
        READING,
        *([ALONE] if alone else []),
        *([TORN] if _is_torn(rows).any() else []),
        *([interrupted] if interrupted else []),
        *([UNCOMPARED] if rows["consistent"].isna().all() else []),
    ]
    return "; ".join(parts)


def _draw_measure(axes: Axes, panel: Panel, measure: _Measure) -> None:
    rows, appearance = panel.rows, look(panel.framework)
    if not measure.is_logarithmic:
        axes.axvline(0, color=INK, linewidth=0.5)
    alone = _has_no_interval(rows, measure)
    for own, shown in ((rows[~alone], appearance), (rows[alone], replace(appearance, color=FAINT))):
        if len(own):
            draw_estimates(axes, own["y"], own, measure.column, shown, factor=measure.factor)


def _has_no_interval(rows: pd.DataFrame, measure: _Measure) -> pd.Series:
    return rows[measure.column].notna() & rows[f"{measure.column}_hi"].isna()


def _set_axis(axes: Axes, rows: pd.DataFrame, measure: _Measure) -> None:
    """All panels of a measure have the same axis. Intervals that are far wider than the estimates do not stretch it."""
    ends = [f"{measure.column}{end}" for end in ("", "_lo", "_hi")]
    values = measure.factor * rows[ends].to_numpy(float).ravel()
    estimates = measure.factor * rows[measure.column].astype(float)
    largest = FARTHEST * estimates.abs().max()
    if measure.is_logarithmic:
        logarithmic(axes.xaxis, values.clip(estimates.min() / FARTHEST, largest))
    else:
        scale = percent if measure.column == "overhead" else linear
        scale(axes.xaxis, values.clip(-largest, largest))
