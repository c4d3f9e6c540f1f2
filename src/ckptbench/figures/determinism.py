"""Loss and accuracy of runs that were killed and resumed, over those of uninterrupted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.answer.labels import describe
from ckptbench.figures import proofs
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.curves import QUANTITIES, Kind, draw_curves, kind_handles
from ckptbench.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    legend,
    nothing_to_show,
)
from ckptbench.figures.kit.style import COLUMN_IN, DOTTED, INK, PAGE_IN, SOLID
from ckptbench.figures.proofs import AGAIN, RESUMED

READING = (
    "Lines are means over repeats (of resumed runs over kinds of kills too), bands reach from the smallest"
    " to the largest of them. Each run is compared with the uninterrupted one of its seed"
)
HOW_FAR = (
    "\N{PLUS-MINUS SIGN} is the largest difference of the training loss in any epoch, and of the accuracy"
    " after the last"
)
REFERENCE = "uninterrupted"
COMPARED = {RESUMED: "killed and resumed", AGAIN: "same seed again"}
KINDS = (
    Kind(REFERENCE, SOLID, 3.5, 0.4),
    Kind(COMPARED[AGAIN], SOLID, 0.8, 1),
    Kind(COMPARED[RESUMED], DOTTED, 2, 1),
)
PANEL_IN = 0.85
MARK = 0.12
"""Height of the mark of a restart, as a part of its panel."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `training`, `resume_proof`, `restore` and `provenance`."""
    compared = proofs.prepared(tables["resume_proof"])
    if compared.empty:
        text = caption(compared, tables["provenance"], "")
        return nothing_to_show(proofs.NOTHING_COMPARED, text)
    shown = proofs.selected(compared)
    how_far = "" if shown["bit_equal"].all() else f"; {HOW_FAR}"
    reading = f"{READING}{how_far}. {proofs.equality(compared, shown)}"
    text = caption(shown, tables["provenance"], reading, (*proofs.SETTING, "ranks"))
    return _grid(shown, _curves(tables["training"], shown), tables["restore"], text)


def _curves(training: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """The rows of the runs shown and of their references, with `kind`."""
    kinds = dict(zip(shown["run"], shown["kind"].map(COMPARED), strict=True))
    kinds |= dict.fromkeys(shown["reference"], REFERENCE)
    return training.assign(kind=training["run"].map(kinds)).dropna(subset="kind")


def _grid(
    shown: pd.DataFrame, curves: pd.DataFrame, restore: pd.DataFrame, text: str
) -> PaperFigure:
    """One strip of panels for each title. A strip shows loss and accuracy of each mode."""
    modes, titles = proofs.modes(shown), list(shown["title"].unique())
    strip_in = PANEL_IN + PANEL_EDGES_IN + (1 + len(COMPARED)) * LINE_IN
    width_in = COLUMN_IN if len(modes) == 1 else PAGE_IN
    figure = PaperFigure(width_in, len(titles) * strip_in + 3 * LINE_IN, text)
    grid = figure.subplots(len(titles), len(modes) * len(QUANTITIES), squeeze=False)
    for line, title in zip(grid, titles, strict=True):
        strip = shown[shown["title"] == title]
        _draw_strip(list(line), strip, modes, curves, restore)
    for axes in proofs.lowest(grid):
        axes.set_xlabel("Epoch")
    restart = Line2D([], [], color=INK, marker="|", linestyle="", markersize=6, label="restart")
    kinds = kind_handles(curves, KINDS)
    legend(figure, [*kinds, restart])
    return figure


def _draw_strip(
    line: Sequence[Axes],
    strip: pd.DataFrame,
    modes: Sequence[bool],
    curves: pd.DataFrame,
    restore: pd.DataFrame,
) -> None:
    title = strip["title"].iloc[0]
    for place, mode in enumerate(modes):
        pair = line[place * len(QUANTITIES) :][: len(QUANTITIES)]
        runs = strip[strip["deterministic"] == mode]
        if runs.empty:
            for axes in pair:
                axes.remove()
            continue
        own = curves[curves["run"].isin({*runs["run"], *runs["reference"]})]
        _draw_pair(pair, own, proofs.restarts(restore, runs))
        by_kind = [(kind, own) for kind in COMPARED if len(own := runs[runs["kind"] == kind])]
        verdicts = [f"{kind}: {proofs.verdict(own)}" for kind, own in by_kind]
        proofs.headed(pair[0], title, [describe("deterministic", mode), *verdicts])
        proofs.above(pair[-1], [_how_far(own) for _, own in by_kind], ha="right")
        title = ""


def _draw_pair(pair: Sequence[Axes], curves: pd.DataFrame, restarts: Sequence[float]) -> None:
    for axes, quantity in zip(pair, QUANTITIES, strict=True):
        draw_curves(axes, curves, quantity, KINDS)
        foot = axes.get_xaxis_transform()
        axes.vlines(restarts, 0, MARK, INK, linewidth=0.6, transform=foot, gid="restart")


def _how_far(runs: pd.DataFrame) -> str:
    """How far loss and accuracy part. Empty where they do not part."""
    if runs["bit_equal"].all():
        return ""
    amounts = {
        "loss": (runs["loss_difference"].max(), ""),
        "accuracy": (100 * runs["accuracy_difference"].abs().max(), " %"),
    }
    return ", ".join(
        f"{name} \N{PLUS-MINUS SIGN}{amount:.2g}{unit}"
        for name, (amount, unit) in amounts.items()
        if pd.notna(amount)
    )
