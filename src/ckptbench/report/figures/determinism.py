"""Loss and accuracy of runs that were killed and resumed, over those of uninterrupted ones."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import pandas as pd

from ckptbench.report.answer.labels import describe
from ckptbench.report.figures import proofs
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.curves import curve_handles, draw_pairs
from ckptbench.report.figures.kit.panels import PaperFigure, entry, legend, nothing_to_show
from ckptbench.report.figures.kit.style import DOTTED, INK, SOLID
from ckptbench.report.figures.proofs import AGAIN, RESUMED

FIGURE = {
    "title": "Resumed training against uninterrupted",
    "tables": ("training", "resume_proof", "restore", "provenance"),
    "of": "compared runs",
}
READING = (
    "Lines are means over repeats (of resumed runs over kinds of kills too), bands reach from the smallest"
    " to the largest of them. Each run is compared with the uninterrupted one of its seed;"
    " \N{PLUS-MINUS SIGN} is the largest difference of the training loss in any epoch, and of the accuracy after the last"
)
REFERENCE = "uninterrupted"
COMPARED = {RESUMED: "killed and resumed", AGAIN: "same seed again"}
KINDS = {
    REFERENCE: {"linestyle": SOLID, "linewidth": 3.5, "alpha": 0.4},
    COMPARED[AGAIN]: {"linestyle": SOLID, "linewidth": 0.8},
    COMPARED[RESUMED]: {"linestyle": DOTTED, "linewidth": 2},
}
TITLE_LETTERS = 46
"""Titles are as wide as a pair of panels."""
MARK = 0.12
"""Height of the mark of a restart, as a part of its panel."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `training`, `resume_proof`, `restore` and `provenance`."""
    compared = proofs.prepared(tables["resume_proof"])
    if compared.empty:
        return nothing_to_show(proofs.NOTHING_COMPARED)
    shown = proofs.selected(compared)
    reading = f"{READING}. {proofs.equality(compared, shown)}"
    text = caption(shown, tables["provenance"], reading, (*proofs.SETTING, "ranks"))
    curves = _curves(tables["training"], shown)
    groups = [runs for _, runs in shown.groupby(["title", "deterministic"], sort=False)]
    pairs = [
        (_title(runs), curves[curves["run"].isin({*runs["run"], *runs["reference"]})])
        for runs in groups
    ]
    figure, panels = draw_pairs(pairs, KINDS, text)
    for place, axes in enumerate(panels):
        places = proofs.restarts(tables["restore"], groups[place // 2])
        foot = axes.get_xaxis_transform()
        axes.vlines(places, 0, MARK, INK, linewidth=0.6, transform=foot, gid="restart")
    restart = entry("restart", marker="|", linestyle="", markersize=6)
    legend(figure, [*curve_handles(curves, KINDS), restart])
    return figure


def _curves(training: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs shown and of their references, with `kind`."""
    kinds = dict(zip(shown["run"], shown["kind"].map(COMPARED), strict=True))
    kinds |= dict.fromkeys(shown["reference"], REFERENCE)
    return training.assign(kind=training["run"].map(kinds)).dropna(subset="kind")


def _title(runs: pd.DataFrame) -> str:
    """The framework and mode, and a line of how each kind of run compares."""
    mode = describe("deterministic", runs["deterministic"].iloc[0])
    verdicts = [
        f"{kind}: {proofs.verdict(own)}{_how_far(own)}"
        for kind in COMPARED
        if len(own := runs[runs["kind"] == kind])
    ]
    lines = [f"{runs['title'].iloc[0]}, {mode}", *verdicts]
    return "\n".join(fill(line, TITLE_LETTERS) for line in lines)


def _how_far(runs: pd.DataFrame) -> str:
    """How far loss and accuracy part. Empty where they do not part."""
    if runs["bit_equal"].all():
        return ""
    amounts = {
        "loss": (runs["loss_difference"].max(), ""),
        "accuracy": (100 * runs["accuracy_difference"].abs().max(), " %"),
    }
    return "".join(
        f", {name} \N{PLUS-MINUS SIGN}{amount:.2g}{unit}"
        for name, (amount, unit) in amounts.items()
        if pd.notna(amount)
    )
