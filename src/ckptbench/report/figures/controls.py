"""Negative controls: what restarts left out on purpose, and whether the comparison noticed."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ckptbench.matrix.registry import NOTHING
from ckptbench.report.answer import labels
from ckptbench.report.answer.setups import in_words, ordered, varying, with_hardware
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import LINE_IN, PaperFigure, nothing_to_show
from ckptbench.report.figures.kit.style import BAND, FAINT, INK, PAGE_IN
from ckptbench.report.figures.proofs import SETTING

FIGURE = {
    "title": "What restarts left out on purpose",
    "tables": ("resume_proof", "provenance"),
    "of": "negative controls",
}
READING = (
    "Whether runs whose restart left a part of the state out on purpose (negative controls) were caught or missed, and the first epoch that differs. A"
    " comparison that names the part, and finds that the training felt it, has caught it: other weights at the end, or"
    " other statistics, which no training step reads (a dash: not tried): {caught} of {all} caught"
)
LETTERS_ACROSS = 12
ROW_IN = 0.15
CAUGHT = "\N{CHECK MARK}"
NOT_TRIED = "\N{EN DASH}"


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `resume_proof` and `provenance`: a line for each framework, a column for each part of the state."""
    proof = tables["resume_proof"]
    rows = _prepared(proof[proof["omit"] != NOTHING])
    if rows.empty:
        return nothing_to_show("No restart left a part of the state out: there is no negative control to show.")  # fmt: skip
    reading = READING.format(caught=caught(rows).sum(), all=len(rows))
    text = caption(rows, tables["provenance"], reading, SETTING)
    lines = list(rows["label"].unique())
    parts = sorted(rows["omit"].unique(), key=lambda part: labels.order("omit", part))
    figure = PaperFigure(PAGE_IN, ROW_IN * len(lines) + 3 * LINE_IN, text)
    axes = figure.add_subplot()
    for y, line in enumerate(lines):
        for x, part in enumerate(parts):
            _draw_control(axes, x, y, rows[(rows["label"] == line) & (rows["omit"] == part)])
    axes.set_xlim(-0.5, len(parts) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    names = [fill(labels.describe("omit", part), LETTERS_ACROSS) for part in parts]
    axes.set_xticks(range(len(parts)), names)
    axes.set_yticks(range(len(lines)), lines)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    """In order, with `label`: the line of each run."""
    in_order = ordered(with_hardware(shown), (*SETTING, "framework", "ranks", "deterministic", "omit"))  # fmt: skip
    names = ["framework", *varying(in_order, (*SETTING, "ranks", "deterministic"))]
    return in_order.assign(label=in_words(in_order, names, ", "))


def _draw_control(axes: Axes, x: int, y: int, runs: pd.DataFrame) -> None:
    if not caught(runs).all():
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=BAND, linewidth=0, gid="missed"))
    color = FAINT if runs.empty else INK
    axes.text(x, y, outcome(runs), ha="center", va="center", color=color, gid="control")


def outcome(runs: pd.DataFrame) -> str:
    """The outcome of one control over all its runs, in a few words."""
    if runs.empty:
        return NOT_TRIED
    own = caught(runs)
    if not own.any():
        return "missed"
    if not own.all():
        return f"{own.sum()} of {len(runs)} caught"
    first = runs["first_epoch"].min()
    return f"{CAUGHT} at the end" if pd.isna(first) else f"{CAUGHT} epoch {first + 1}"


def caught(runs: pd.DataFrame) -> pd.Series:
    """Of each control, whether it was caught."""
    known: pd.Series = runs["caught"].fillna(False).astype(bool)
    return known
