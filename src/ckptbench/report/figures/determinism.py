"""Loss and accuracy of runs that were killed and resumed, over those of uninterrupted ones."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ckptbench.analysis.tables.curves import curves
from ckptbench.matrix.networks.models import READ_TOKENS
from ckptbench.matrix.registry import RERUN
from ckptbench.report.answer.labels import describe
from ckptbench.report.figures import proofs
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    nothing_to_show,
    small_multiples,
)
from ckptbench.report.figures.kit.style import DOTTED, INK, SOLID, Look, look
from ckptbench.report.figures.proofs import RESUMED

FIGURE = {
    "title": "Resumed training against uninterrupted",
    "tables": ("steps", "epochs", "evaluations", "resume_proof", "restore", "provenance"),
    "of": "compared runs",
    "about": "restart",
}
READING = (
    "Lines are means over repeats (and for resumed runs over kinds of kills), bands their range. Each run is compared with the "
    "uninterrupted run of its seed; ± is the largest difference of the training loss in any epoch, and of the accuracy after the last"
)
REFERENCE = "uninterrupted"
COMPARED = {RESUMED: "killed and resumed", RERUN: "same seed again"}
KINDS: Mapping[str, Mapping[str, Any]] = {
    REFERENCE: {"linestyle": SOLID, "linewidth": 3.5, "alpha": 0.4},
    COMPARED[RERUN]: {"linestyle": SOLID, "linewidth": 0.8},
    COMPARED[RESUMED]: {"linestyle": DOTTED, "linewidth": 2},
}
"""Sorts of runs, which are never averaged with one another. Their curves often are the same to the last bit: all must be seen when they coincide."""
QUANTITIES = {
    "training_loss": ("Training loss", 1),
    "test_accuracy": ("Test accuracy (%)", 100),
    "test_perplexity": ("Test perplexity", 1),
}
"""Each with the name of its axis and the factor between the two."""
_QUALITIES = ["test_accuracy", "test_perplexity"]
PANEL_IN = 1.1
MARKERS = 6
"""About how many markers a line gets."""
TITLE_LETTERS = 46
"""Titles are as wide as a pair of panels."""
MARK = 0.12
"""Height of the mark of a restart, as a part of its panel."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `steps`, `epochs`, `evaluations`, `resume_proof`, `restore` and `provenance`."""
    compared = proofs.prepared(tables["resume_proof"])
    if compared.empty:
        return nothing_to_show(proofs.NOTHING_COMPARED)
    shown = proofs.selected(compared)
    reading = f"{READING}. {proofs.equality(compared, shown)}"
    text = caption(shown, tables["provenance"], reading, (*proofs.SETTING, "ranks"))
    known = _curves(tables, shown)
    groups = [runs for _, runs in shown.groupby(["title", "deterministic"], sort=False)]
    kept = _QUALITIES if known[_QUALITIES].notna().any(axis=None) else []
    each = 1 + bool(kept)  # the loss, and beside it the accuracy, where any is known
    titles = [title for runs in groups for title in (_title(runs), "")[:each]]
    across = 2 if len(groups) % 2 else 2 * each  # both panels of a pair are in one line
    figure, panels = small_multiples(titles, PANEL_IN, text, across=across)
    first: dict[str, Axes] = {}
    for place, axes in enumerate(panels):
        runs = groups[place // each]
        quantity = _quality(runs) if place % each else "training_loss"
        rows = known[known["run"].isin({*runs["run"], *runs["reference"]})]
        _draw_curves(axes, rows, quantity, look(runs["framework"].iloc[0]))
        if first.setdefault(quantity, axes) is not axes:
            axes.sharey(first[quantity])
        places = proofs.restarts(tables["restore"], runs)
        foot = axes.get_xaxis_transform()
        axes.vlines(places, 0, MARK, INK, linewidth=0.6, transform=foot, gid="restart")
    kinds = [entry(kind, **line) for kind, line in KINDS.items() if (known["kind"] == kind).any()]
    legend(figure, [*kinds, entry("restart", marker="|", linestyle="", markersize=6)])
    return figure


def _curves(tables: Mapping[str, pd.DataFrame], shown: pd.DataFrame) -> pd.DataFrame:
    """Loss, accuracy and perplexity of the runs shown and of their references, by epoch, with `kind`."""
    kinds = dict(zip(shown["run"], shown["kind"].map(COMPARED), strict=True))
    kinds |= dict.fromkeys(shown["reference"], REFERENCE)
    rows = curves(tables, kinds)
    return rows.assign(kind=rows["run"].map(kinds), test_perplexity=np.exp(rows["test_loss"]))


def _quality(runs: pd.DataFrame) -> str:
    return "test_perplexity" if runs["model"].isin(READ_TOKENS).any() else "test_accuracy"


def _draw_curves(axes: Axes, rows: pd.DataFrame, quantity: str, own_look: Look) -> None:
    """Of each kind of runs a mean line and a band from the smallest to the largest."""
    label, factor = QUANTITIES[quantity]
    known = rows[rows[quantity].notna()]
    color, marker = own_look.color, own_look.marker
    for kind, line in KINDS.items():
        own = known[known["kind"] == kind]
        if own.empty:
            continue
        curve = factor * own.groupby("epoch")[quantity].agg(["mean", "min", "max"])
        done = curve.index + 1
        axes.fill_between(done, curve["min"], curve["max"], color=color, alpha=0.15, linewidth=0)
        every = max(1, len(curve) // MARKERS)
        axes.plot(done, curve["mean"], color=color, marker=marker, markevery=every, gid=kind, **line)  # fmt: skip
    if known.empty:
        axes.text(0.5, 0.5, "not evaluated", transform=axes.transAxes, ha="center")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    axes.set_xlabel("Epoch")
    axes.set_ylabel(label)


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
