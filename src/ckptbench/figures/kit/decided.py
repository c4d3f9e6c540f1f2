"""What the figures on the decision share: which rows they show, and what a curve is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import pandas as pd
from matplotlib.lines import Line2D

from ckptbench.answer import labels
from ckptbench.answer.setups import (
    SEPARATOR,
    SYSTEM,
    constants,
    in_words,
    ordered,
    separating,
    varying,
    with_hardware,
)
from ckptbench.decide.inputs import GIVEN
from ckptbench.figures.kit.style import LINE_STYLES, LineStyle

SERIES = ("strategy", "format", "recovery")
KEY = ("framework", *SYSTEM, *SERIES)
MOST = 6
"""How many curves a panel has. The tables have the rest."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#222222")
"""Of curves within a panel: here a color is no framework."""


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, with `system`: framework and facet in words, and `series`: the name of a curve."""
    known = ordered(with_hardware(rows), (*SYSTEM, "framework", "ranks", *SERIES, "gpus"))
    names = separating(known, SYSTEM)
    facets = in_words(known, names, ", ") if names else [""] * len(known)
    system = [
        model
        if framework == GIVEN
        else SEPARATOR.join(part for part in (labels.name(framework), facet) if part)
        for framework, model, facet in zip(known["framework"], known["model"], facets, strict=True)
    ]
    inside = [name for name in SERIES if _varies_within(known, name)] or ["strategy", "recovery"]
    series = pd.Series(in_words(known, inside, ", "), known.index)
    return known.assign(system=system, series=series)


def in_panels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, with `panel`: all that separates two of them but the interval."""
    columns = (
        *SYSTEM,
        "framework",
        "ranks",
        "strategy",
        "format",
        "recovery",
        "history",
        "interval",
    )
    known = ordered(with_hardware(rows), columns)
    names = ["framework", *separating(known, SYSTEM), *varying(known, ["ranks"]), *_of_cell(known)]
    return known.assign(panel=in_words(known, names, SEPARATOR))


def _of_cell(rows: pd.DataFrame) -> list[str]:
    names = ("strategy", "format", "recovery", "history")
    return [name for name in names if _varies_within(rows, name)] or ["strategy"]


def of_most_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each system the rows of the most ranks that it was measured with: the least is projected from there."""
    most = rows.groupby([rows[name] for name in ("framework", *SYSTEM)])["ranks"].transform("max")
    return rows[rows["ranks"] == most]


def foremost(rows: pd.DataFrame) -> list[str]:
    """The curves that are shown: those with the highest goodput at the most GPUs, in the order of the rows."""
    last = rows[rows["gpus"] == rows["gpus"].max()]
    best = last.groupby("series")["goodput"].max().sort_values(ascending=False).index[:MOST]
    return [str(name) for name in rows["series"].unique() if name in best]


def looks(names: Sequence[str]) -> dict[str, tuple[str, LineStyle]]:
    """A color and a line style for each curve."""
    return dict(zip(names, zip(islice(cycle(COLORS), len(names)), islice(cycle(LINE_STYLES), len(names)), strict=True), strict=True))  # fmt: skip


def handles(styles: Mapping[str, tuple[str, LineStyle]]) -> list[Line2D]:
    """The lines of the legend."""
    return [
        Line2D([], [], color=color, linestyle=line_style, marker="o", markersize=4, label=name)
        for name, (color, line_style) in styles.items()
    ]


def common(rows: pd.DataFrame) -> str:
    """In words, what all rows share. Of costs that a user gave: nothing but what the title says."""
    measured = rows[rows["framework"] != GIVEN]
    if len(measured) < len(rows):
        return ""
    return ", ".join(constants(measured, (*SYSTEM, "strategy", "format", "recovery")))


def _varies_within(frame: pd.DataFrame, column: str) -> bool:
    within = ["framework", "strategy"] if column == "format" else ["framework"]
    return bool((frame.groupby(within)[column].nunique() > 1).any())
