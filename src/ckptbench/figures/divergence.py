"""Which tensors differ from those of the uninterrupted run, epoch by epoch, and from when on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN
from matplotlib.patches import Patch

from ckptbench.answer import labels
from ckptbench.figures import controls, proofs
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.panels import (
    LINE_IN,
    MARGIN_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    legend,
    nothing_to_show,
)
from ckptbench.figures.kit.style import COLUMN_IN, GREYS, INK, PAGE_IN
from ckptbench.figures.proofs import NOUNS

READING = (
    "Shades: share of the tensors of a group that differ after an epoch from those of the uninterrupted run"
    " of the same seed, over all ranks and runs. Marks below a panel are restarts"
)
DISTANCES = (
    "ULP, L2: the largest distances of a tensor of weights or momentum at the end, in units in the last"
    " place and relative to its L2 norm"
)
ONLY = (
    "Panels show only what differs, of each framework in the most ways and with the largest number of ranks;"
    " the counts that follow are of all runs"
)
ALL_EQUAL = (
    "Every run is bitwise equal to the uninterrupted run of the same seed: no tensor differs."
)
BUT_CONTROLS = (
    "Every run that left nothing out is bitwise equal to the uninterrupted run of the same seed."
)
UNITS = {"max_ulp": "{} ULP", "relative_l2": "L2 {}"}
EQUAL, SOME, ALL = "#ffffff", "#d9d9d9", INK
SHADES = LinearSegmentedColormap.from_list("share", [SOME, ALL]).with_extremes(under=EQUAL)
LEAST = 1e-9
"""Smallest share that is drawn. Smaller ones count as zero."""
GROUP_IN = 0.115
"""Height of a group's row."""
NARROW = 2
"""Number of panels that fit side by side into one column of a page."""
RESTART_POINTS = 4
"""Length of the mark of a restart. The epochs stand below it."""
EPOCHS_LABELLED = 6
WORDS = 2
"""Lines of words above a panel."""


@dataclass(frozen=True, slots=True)
class _Strip:
    """Panels side by side, with the same rows."""

    title: str
    runs: pd.DataFrame
    shares: pd.DataFrame
    groups: list[str]

    @property
    def height_in(self) -> float:
        return PANEL_EDGES_IN + WORDS * LINE_IN + GROUP_IN * len(self.groups)


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `divergence`, `resume_proof`, `restore` and `provenance`."""
    proof = tables["resume_proof"]
    compared, left_out = proofs.prepared(proof), controls.prepared(proof)
    if compared.empty:
        text = caption(compared, tables["provenance"], "")
        return nothing_to_show(proofs.NOTHING_COMPARED, text)
    differing = _differing(compared)
    shown = differing if differing.empty else proofs.selected(differing)
    reading = [
        *([] if shown.empty else [READING]),
        *([DISTANCES] if _distances_known(shown) else []),
        *([] if shown.empty else [ONLY]),
        proofs.equality(compared, compared),
        *controls.sentences(left_out),
    ]
    of = compared if shown.empty else shown
    text = caption(of, tables["provenance"], ". ".join(reading), (*proofs.SETTING, "ranks"))
    if shown.empty:
        return _without_maps(left_out, text)
    return _page(list(_strips(shown, tables["divergence"])), left_out, tables["restore"], text)


def _differing(compared: pd.DataFrame) -> pd.DataFrame:
    """The runs of those panels in which not every run is bitwise equal."""
    panel = [*proofs.SETTING, "framework", "ranks", "deterministic", "kind"]
    equal = compared.groupby(panel, dropna=False)["bit_equal"].transform("all")
    return compared[~equal]


def _without_maps(left_out: pd.DataFrame, text: str) -> PaperFigure:
    """Nothing differs: a line says so, above the controls where there are any."""
    if left_out.empty:
        return nothing_to_show(ALL_EQUAL, text)
    height_in = controls.height_in(left_out) + controls.EDGES_IN + 2 * LINE_IN
    figure = PaperFigure(PAGE_IN, height_in, text)
    controls.draw_controls(figure.add_subplot(), left_out)
    x = MARGIN_IN / figure.get_figwidth()
    figure.suptitle(
        BUT_CONTROLS, x=x, ha="left", gid="nothing", fontsize="medium", fontweight="normal"
    )
    return figure


def _strips(shown: pd.DataFrame, divergence: pd.DataFrame) -> Iterator[_Strip]:
    for title in shown["title"].unique():
        runs = shown[shown["title"] == title]
        shares = divergence[divergence["run"].isin(runs["run"])]
        order = sorted(shares["group"].unique(), key=lambda group: labels.order("group", group))
        yield _Strip(title, runs, shares, order)


def _page(
    strips: Sequence[_Strip], left_out: pd.DataFrame, restore: pd.DataFrame, text: str
) -> PaperFigure:
    """The maps, and below them the controls where there are any."""
    columns = _columns(strips)
    parts_in, edges_in = [sum(strip.height_in for strip in strips)], 2 * LINE_IN
    if len(left_out):
        parts_in.append(controls.height_in(left_out))
        edges_in += controls.EDGES_IN
    narrow = len(columns) <= NARROW and left_out.empty
    figure = PaperFigure(COLUMN_IN if narrow else PAGE_IN, sum(parts_in) + edges_in, text)
    page = figure.add_gridspec(len(parts_in), 1, height_ratios=parts_in)
    heights = [len(strip.groups) for strip in strips]
    grid = (
        page[0]
        .subgridspec(len(strips), len(columns), height_ratios=heights)
        .subplots(squeeze=False)
    )
    for line, strip in zip(grid, strips, strict=True):
        _draw_strip(line, strip, columns, restore)
    for axes in proofs.lowest(grid):
        axes.set_xlabel("Epoch")
    if len(left_out):
        controls.draw_controls(figure.add_subplot(page[1]), left_out)
    legend(figure, _legend())
    return figure


def _columns(strips: Sequence[_Strip]) -> list[tuple[bool, str]]:
    """The deterministic mode and the kind of the runs of each column."""
    present = {
        pair for s in strips for pair in zip(s.runs["deterministic"], s.runs["kind"], strict=True)
    }
    return [(mode, kind) for mode in (True, False) for kind in NOUNS if (mode, kind) in present]


def _draw_strip(
    line: Sequence[Axes],
    strip: _Strip,
    columns: Sequence[tuple[bool, str]],
    restore: pd.DataFrame,
) -> None:
    title = strip.title
    for axes, (mode, kind) in zip(line, columns, strict=True):
        runs = strip.runs[(strip.runs["deterministic"] == mode) & (strip.runs["kind"] == kind)]
        if runs.empty:
            axes.remove()
            continue
        _draw_map(axes, strip.shares[strip.shares["run"].isin(runs["run"])], strip.groups)
        if restarts := proofs.restarts(restore, runs):
            _mark_restarts(axes, restarts)
        axes.tick_params(length=0, labelleft=bool(title))
        axes.tick_params(axis="x", pad=RESTART_POINTS)
        in_mode = labels.describe("deterministic", mode).removesuffix(" mode")
        proofs.headed(axes, title, [f"{in_mode}, {kind}", distance(runs)])
        title = ""


def _draw_map(axes: Axes, shares: pd.DataFrame, order: Sequence[str]) -> None:
    counts = shares.groupby(["group", "epoch"])[["different", "tensors"]].sum()
    epochs = range(shares["epoch"].max() + 1)
    share = (counts["different"] / counts["tensors"]).unstack("epoch").reindex(list(order))
    axes.pcolormesh(
        range(len(epochs) + 1),
        range(len(order) + 1),
        share.reindex(columns=list(epochs)).to_numpy(),
        cmap=SHADES,
        vmin=LEAST,
        vmax=1,
        edgecolors=GREYS[3],
        linewidth=0.3,
        gid="shares",
    )
    axes.invert_yaxis()
    axes.grid(visible=False)
    labelled = epochs[:: -(-len(epochs) // EPOCHS_LABELLED)]
    axes.set_xticks([e + 0.5 for e in labelled], [str(e + 1) for e in labelled])
    names = [labels.describe("group", group) for group in order]
    axes.set_yticks([y + 0.5 for y in range(len(order))], names)


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


def _distances_known(runs: pd.DataFrame) -> bool:
    """Whether the distance of any run that is not bitwise equal is known."""
    parted = runs[~runs["bit_equal"]]
    return bool(parted[list(UNITS)].notna().any(axis=None))


def _rough(number: float) -> str:
    """`12`, `0.031`, `2e9`."""
    text = f"{number:.2g}" if number < 1e5 else f"{number:.0e}"
    return re.sub(r"e([+-])0*", lambda sign: "e" if sign[1] == "+" else "e-", text)


def _legend() -> list[Artist]:
    shades = {EQUAL: "none differs", SOME: "some", to_hex(SHADES(0.5)): "half", ALL: "all"}
    restart = Line2D([], [], color=INK, marker="|", linestyle="", markersize=4, label="restart")
    patches = [Patch(facecolor=c, edgecolor=GREYS[3], label=name) for c, name in shades.items()]
    return [*patches, restart]
