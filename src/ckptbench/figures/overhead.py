"""Overhead of checkpointing: both estimates of every setup, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.answer.setups import CHECKPOINT, SYSTEM, prepared
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.disturbed import with_disturbed
from ckptbench.figures.kit.outside import is_own
from ckptbench.figures.kit.panels import Panel, PaperFigure, forest, legend, nothing_to_show
from ckptbench.figures.kit.style import BAND, INK, look
from ckptbench.figures.kit.ticks import LINEAR_PERCENT, is_wide, percent

READING = (
    "what checkpoints add to the training time, estimated twice: against the baseline of the same {same}, and from inside the run,"
    " by its stalls and slower steps. Points are estimates, bars their 95 % intervals"
)
SAME, SAME_OWN = "ranks, repeat and seed", "values and repeat"
DISAGREE = "shaded: the two intervals do not overlap; do not quote either before it is known why"
SINGLE = "one repeat has the spread of the other setups"
WITHOUT = "without a repeat there is none"
LOGARITHMIC = f"the axis is logarithmic beyond {LINEAR_PERCENT} %"
STEADY = "ticks are the estimate from inside the run, had every checkpoint cost what those of the steady state did"
STEADY_OWN = (
    "ticks are the estimate from inside the run, had its first checkpoint cost what its others did"
)
ESTIMATES = {"paired": -0.17, "in_run": 0.17}
"""Vertical offset of each estimate within its row, by the column of the estimate."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `overhead` and `provenance`."""
    shown = tables["overhead"]
    if shown.empty:
        text = caption(shown, tables["provenance"], "")
        return nothing_to_show(
            "No run with checkpoints was timed from start to end: there is no overhead to show.",
            text,
        )
    rows = prepared(with_disturbed(shown, tables, paired=True))
    text = caption(
        rows,
        tables["provenance"],
        _reading(rows, is_own(tables)),
        (*SYSTEM, "steps_per_epoch", *CHECKPOINT),
    )
    figure, panels = forest(rows, text, pitch_in=0.15)
    for panel in panels:
        _draw_panel(panel)
        percent(panel.axes[0].xaxis, _values_percent(rows))
    legend(figure, *_legend(rows, is_own(tables)))
    return figure


def _reading(rows: pd.DataFrame, own: bool) -> str:
    once, known = rows["repeats"] == 1, rows["in_run_lo"].notna() | rows["paired_lo"].notna()
    parts = [
        READING.format(same=SAME_OWN if own else SAME),
        *([SINGLE] if (once & known).any() else []),
        *([WITHOUT] if (once & ~known).any() else []),
        *([STEADY_OWN if own else STEADY] if rows["in_run_steady"].notna().any() else []),
        *([DISAGREE] if _disagree(rows).any() else []),
        *([LOGARITHMIC] if is_wide(_values_percent(rows)) else []),
    ]
    return "; ".join(parts)


def _draw_panel(panel: Panel) -> None:
    (axes,) = panel.axes
    axes.axvline(0, color=INK, linewidth=0.5)
    for y in panel.rows.loc[_disagree(panel.rows), "y"]:
        axes.axhspan(y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0, gid="disagree")
    for estimate in ESTIMATES:
        _draw_estimate(axes, panel, estimate)
    _draw_steady(axes, panel)
    if panel.is_lowest:
        axes.set_xlabel("Overhead (%)")


def _draw_estimate(axes: Axes, panel: Panel, estimate: str) -> None:
    rows, appearance = panel.rows, look(panel.framework)
    y = rows["y"] + ESTIMATES[estimate]
    axes.hlines(
        y, 100 * rows[f"{estimate}_lo"], 100 * rows[f"{estimate}_hi"], colors=appearance.color
    )
    axes.plot(
        100 * rows[estimate],
        y,
        appearance.marker,
        color=appearance.color,
        markerfacecolor=appearance.color if estimate == "paired" else "white",
        gid=estimate,
    )


def _draw_steady(axes: Axes, panel: Panel) -> None:
    """Without its interval, which is in the table: it hardly differs from that of the estimate beside it."""
    axes.plot(
        100 * panel.rows["in_run_steady"],
        panel.rows["y"] + ESTIMATES["in_run"],
        "|",
        color=INK,
        markersize=6,
        gid="steady",
    )


def _disagree(rows: pd.DataFrame) -> pd.Series:
    return rows["agree"].eq(False).fillna(False).astype(bool)


def _values_percent(rows: pd.DataFrame) -> list[float]:
    """The values that the axis must hold: the estimates and both ends of their intervals."""
    columns = [f"{estimate}{end}" for estimate in ESTIMATES for end in ("", "_lo", "_hi")]
    values = rows[[*columns, "in_run_steady"]].to_numpy().ravel()
    return list(100 * values[np.isfinite(values)])


def _legend(rows: pd.DataFrame, own: bool) -> list[list[Artist]]:
    estimates: list[Artist] = [
        Line2D([], [], color=INK, marker="o", label="paired with baseline"),
        Line2D([], [], color=INK, marker="o", markerfacecolor="white", label="from inside the run"),
    ]
    name = "without the first" if own else "steady state"
    steady = Line2D([], [], color=INK, marker="|", linestyle="", markersize=6, label=name)
    band = Patch(facecolor=BAND, label="the two intervals do not overlap")
    return [
        estimates,
        [
            *([steady] if rows["in_run_steady"].notna().any() else []),
            *([band] if _disagree(rows).any() else []),
        ],
    ]
