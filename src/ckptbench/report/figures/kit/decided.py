"""What the figures on the decision share: which rows they show, what a curve is called, and an axis of lost time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.decide.inputs import GIVEN
from ckptbench.report.answer.labels import describe
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    constants,
    faceted,
    in_words,
    ordered,
    with_hardware,
)
from ckptbench.report.figures.kit.axes import logarithmic
from ckptbench.report.figures.kit.captions import capitalized_sentences
from ckptbench.report.figures.kit.panels import entry
from ckptbench.report.figures.kit.series import varies_within
from ckptbench.report.figures.kit.style import LINE_STYLES, LOOKS

SERIES = ("strategy", "format", "recovery")
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#222222", "#E69F00", "#8A8A8A")
"""Of curves within a panel that are no frameworks."""
LEAST = 1e-6
"""A smaller loss, in percent, is drawn as this one."""
PROJECTED = (
    "projected: steps, checkpoints and recoveries are assumed to cost the same as at the known number of GPUs, and failures to grow in "
    "proportion to the GPUs"
)
NONE = "No setup with checkpoints was timed, so there is no decision to show."
Looks = Mapping[str, Mapping[str, Any]]


def curves_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, with `facet`: the panel, as of all figures; `series`: what tells two curves of a panel apart; and
    the loss in percent: `loss`, `loss_lo`, `loss_hi`.
    """
    known = ordered(with_hardware(rows), (*PANEL_COLUMNS, "framework", "ranks", *SERIES, "gpus"))
    inside = [name for name in SERIES if varies_within(known, name)]
    series = in_words(known, inside or ["strategy", "recovery"], ", ")
    if known["framework"].nunique() > 1:
        framework = in_words(known, ["framework"], ", ")
        series = framework + (", " + series if inside else "")
    losses = {"loss": "goodput", "loss_lo": "goodput_hi", "loss_hi": "goodput_lo"}
    return faceted(known).assign(
        series=series,
        **{name: (100 * (1 - known[of])).clip(lower=LEAST) for name, of in losses.items()},
    )


def foremost(rows: pd.DataFrame, most: int) -> list[str]:
    """The curves that are shown: those that lose the least at the most GPUs, of each panel the best ones first. In the order of
    the rows.
    """
    last = rows[rows["gpus"] == rows.groupby("facet")["gpus"].transform("max")]
    losses = last.groupby(["facet", "series"])["loss"].min().sort_values()
    by_place = losses.groupby("facet").cumcount().sort_values(kind="stable")
    best = by_place.index.get_level_values("series").unique()[:most]
    return [str(name) for name in rows["series"].unique() if name in best]


def looks(names: Sequence[str]) -> Looks:
    """A color and a line style for each curve. Where each curve is a framework, it has that one's color, as in all figures."""
    own = {describe("framework", name): look.color for name, look in LOOKS.items()}
    colors = [own[name] for name in names] if own.keys() >= set(names) else cycle(COLORS)
    return {
        name: {"color": color, "linestyle": line_style}
        for name, color, line_style in zip(names, colors, cycle(LINE_STYLES), strict=False)
    }


def handles(styles: Looks) -> list[Line2D]:
    """The lines of the legend. A single curve needs none."""
    return [entry(name, **look) for name, look in styles.items()] if len(styles) > 1 else []


def lost(axes: Axes, losses: Iterable[float]) -> None:
    """The axis of these losses, in percent."""
    logarithmic(axes.yaxis, losses)
    axes.set_ylabel("Time lost (%)")


def caption(reading: str, rows: pd.DataFrame, shown: int, table: str, tables: Mapping[str, pd.DataFrame]) -> str:  # fmt: skip
    """`reading` with the name of the failure rate, and where the costs are from. `shown` curves of the rows are drawn."""
    rates = tables["failure_rates"].set_index("rate")
    titles = rates["title"] + rates["failures"].eq(0).map({True: " (none seen: an upper bound)", False: ""})  # fmt: skip
    left_out = rows["series"].nunique() - shown
    return capitalized_sentences(
        [
            reading.format(rate=titles[rows["rate"].iloc[0]]),
            PROJECTED if rows["projected"].any() else "",
            f"{left_out} more curves: table {table}" if left_out else "",
            _common(rows),
            *dict.fromkeys(tables["decision_costs"]["source"]),
        ]
    )


def _common(rows: pd.DataFrame) -> str:
    """In words, what all rows share. Of costs that a user gave: the title of their file."""
    if (rows["framework"] == GIVEN).all():
        return f"with {'; '.join(rows['model'].unique())}"
    return ", ".join(constants(rows, ("framework", *PANEL_COLUMNS, *SERIES)))
