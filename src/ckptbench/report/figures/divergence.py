"""Which tensors differ from those of the uninterrupted run, epoch by epoch, and from when on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.markers import TICKDOWN
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ckptbench.report.answer import labels
from ckptbench.report.figures import proofs
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.panels import (
    PaperFigure,
    entry,
    legend,
    nothing_to_show,
    small_multiples,
)
from ckptbench.report.figures.kit.style import GREYS, INK

FIGURE = {
    "title": "What differs after a restart",
    "tables": ("divergence", "resume_proof", "restore", "provenance"),
    "of": "compared runs",
    "about": "restart",
}
READING = (
    "Shades: fraction of the tensors of a group that differ after an epoch from the uninterrupted run of the same seed, over all ranks "
    "and runs. Marks below a panel are restarts. ULP, L2: the largest distance of a weight or momentum tensor at the end, in units in "
    "the last place and relative to its L2 norm. Panels show only differences: for each framework the setup with the most comparisons "
    "and the largest number of ranks; the counts that follow cover all runs"
)
ALL_EQUAL = (
    "Every run is bitwise equal to the uninterrupted run of the same seed: no tensor differs."
)
UNITS = {"max_ulp": "{} ULP", "relative_l2": "L2 {}"}
EQUAL, SOME, ALL = "#ffffff", "#d9d9d9", INK
SHADES = LinearSegmentedColormap.from_list("share", [SOME, ALL]).with_extremes(under=EQUAL)
LEAST = 1e-9
"""Smallest share that is drawn. Smaller ones count as zero."""
GROUP_IN = 0.125
"""Height of a group's row."""
RESTART_POINTS = 4
"""Length of the mark of a restart. The epochs stand below it."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `divergence`, `resume_proof`, `restore` and `provenance`."""
    compared = proofs.prepared(tables["resume_proof"])
    if compared.empty:
        return nothing_to_show(proofs.NOTHING_COMPARED)
    differing = _differing(compared)
    counts = proofs.equality(compared, compared)
    if differing.empty:
        text = caption(compared, tables["provenance"], counts, (*proofs.SETTING, "ranks"))
        return nothing_to_show(ALL_EQUAL, text)
    shown = proofs.selected(differing)
    text = caption(shown, tables["provenance"], f"{READING}. {counts}", (*proofs.SETTING, "ranks"))
    panels = [own for _, own in shown.groupby(["title", "deterministic", "kind"], sort=False)]
    shares = tables["divergence"][tables["divergence"]["run"].isin(shown["run"])]
    groups = sorted(shares["group"].unique(), key=lambda group: labels.order("group", group))
    titles = [_title(runs) for runs in panels]
    figure, drawn = small_multiples(titles, GROUP_IN * len(groups), text)
    for axes, runs in zip(drawn, panels, strict=True):
        _draw_map(axes, shares[shares["run"].isin(runs["run"])], groups)
        if restarts := proofs.restarts(tables["restore"], runs):
            _mark_restarts(axes, restarts)
    legend(figure, _legend())
    return figure


def _differing(compared: pd.DataFrame) -> pd.DataFrame:
    """The runs of those panels in which not every run is bitwise equal."""
    panel = [*proofs.SETTING, "framework", "ranks", "deterministic", "kind"]
    equal = compared.groupby(panel, dropna=False)["bit_equal"].transform("all")
    return compared[~equal]


def _title(runs: pd.DataFrame) -> str:
    title, mode, kind = runs[["title", "deterministic", "kind"]].iloc[0]
    return f"{title}, {labels.describe('deterministic', mode)}, {kind}\n{distance(runs)}"


def _draw_map(axes: Axes, shares: pd.DataFrame, groups: Sequence[str]) -> None:
    counts = shares.groupby(["group", "epoch"])[["different", "tensors"]].sum()
    share = (counts["different"] / counts["tensors"]).unstack("epoch")
    axes.pcolormesh(
        share.reindex(index=list(groups), columns=range(shares["epoch"].max() + 1)).to_numpy(),
        cmap=SHADES,
        vmin=LEAST,
        vmax=1,
        edgecolors=GREYS[3],
        linewidth=0.3,
        gid="shares",
    )
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_yticks(
        [y + 0.5 for y in range(len(groups))],
        [labels.describe("group", group) for group in groups],
    )
    axes.tick_params(length=0)
    axes.tick_params(axis="x", pad=RESTART_POINTS)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("Epochs done")


def _mark_restarts(axes: Axes, epochs: Sequence[float]) -> None:
    axes.plot(
        epochs,
        [0] * len(epochs),
        linestyle="",
        marker=TICKDOWN,
        markersize=RESTART_POINTS,
        color=INK,
        markeredgewidth=0.6,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        gid="restart",
    )


def distance(runs: pd.DataFrame) -> str:
    """How far the weights and momentum of these runs are from those of their references at the end, in a few words."""
    if runs["bit_equal"].all():
        return "bitwise equal"
    # A largest one is known where each run's is: not beside a NaN, nor of a model too large to keep its arrays.
    known = {name: runs[name].max() for name in UNITS if runs[name].notna().all()}
    if not known:
        return "distance not recorded"
    if known.keys() == UNITS.keys() and not any(known.values()):
        return "weights, momentum equal"
    return ", ".join(UNITS[name].format(_rough(number)) for name, number in known.items())


def _rough(number: float) -> str:
    """`12`, `0.031`, `2e9`."""
    text = f"{number:.2g}" if number < 1e5 else f"{number:.0e}"
    return re.sub(r"e([+-])0*", lambda sign: "e" if sign[1] == "+" else "e-", text)


def _legend() -> list[Artist]:
    shades = {EQUAL: "none differs", SOME: "some", to_hex(SHADES(0.5)): "half", ALL: "all"}
    restart = entry("restart", marker="|", linestyle="", markersize=4)
    patches = [Patch(facecolor=c, edgecolor=GREYS[3], label=name) for c, name in shades.items()]
    return [*patches, restart]
