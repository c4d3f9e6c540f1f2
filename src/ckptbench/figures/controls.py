"""Negative controls: what restarts left out on purpose, and whether the comparison noticed."""

from __future__ import annotations

from textwrap import fill

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ckptbench.analysis.tables.grouping import groups
from ckptbench.answer import labels
from ckptbench.answer.setups import in_words, ordered, varying, with_hardware
from ckptbench.figures.kit.panels import LINE_IN
from ckptbench.figures.kit.style import BAND, FAINT, INK
from ckptbench.figures.proofs import SETTING
from ckptbench.matrix.catalogue import NOTHING

TITLE = "Left out on purpose: caught or missed, and the first epoch that differs"
READING = (
    "Of the runs whose restart left a part of the state out on purpose (negative controls), a comparison"
    " that names the part, and finds that the training felt it, has caught it: other weights at the end, or"
    " other statistics, which no training step reads (a dash: not tried)"
)
LETTERS_ACROSS = 12
ROW_IN = 0.15
EDGES_IN = 4 * LINE_IN
CAUGHT = "\N{CHECK MARK}"
NOT_TRIED = "\N{EN DASH}"


def prepared(proof: pd.DataFrame) -> pd.DataFrame:
    """The runs whose restarts left something out, in order. Their `label` names the row of each."""
    rows = with_hardware(proof[proof["omit"] != NOTHING])
    in_order = ordered(rows, (*SETTING, "framework", "ranks", "deterministic", "omit"))
    names = ["framework", *varying(in_order, (*SETTING, "ranks", "deterministic"))]
    return in_order.assign(label=in_words(in_order, names, ", "))


def sentences(rows: pd.DataFrame) -> list[str]:
    """How many controls were caught and which were not, for a caption. Empty where there are no controls."""
    if rows.empty:
        return []
    names = missed(rows)
    count = f"{READING}: {caught(rows).sum()} of {len(rows)} caught"
    return [f"{count}, not {'; '.join(names)}" if names else count]


def missed(rows: pd.DataFrame) -> list[str]:
    """The controls that were not caught: `PyTorch without momentum`."""
    return [
        f"{key['label']} without {_part(key['omit'])}"
        for key, _ in groups(rows[~caught(rows)], ["label", "omit"])
    ]


def height_in(rows: pd.DataFrame) -> float:
    """Height of the table's lines. Its title and head take EDGES_IN."""
    return float(ROW_IN * rows["label"].nunique())


def draw_controls(axes: Axes, rows: pd.DataFrame) -> None:
    """A table: a line for each framework, a column for each part of the state."""
    lines = list(rows["label"].unique())
    parts = sorted(rows["omit"].unique(), key=lambda part: labels.order("omit", part))
    for y, line in enumerate(lines):
        for x, part in enumerate(parts):
            _draw_control(axes, x, y, rows[(rows["label"] == line) & (rows["omit"] == part)])
    axes.set_xlim(-0.5, len(parts) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xticks(range(len(parts)), [fill(_part(part), LETTERS_ACROSS) for part in parts])
    axes.set_yticks(range(len(lines)), lines)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_title(TITLE)


def _draw_control(axes: Axes, x: int, y: int, runs: pd.DataFrame) -> None:
    if not caught(runs).all():
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=BAND, linewidth=0, gid="missed"))
    axes.text(
        x,
        y,
        outcome(runs),
        ha="center",
        va="center",
        color=FAINT if runs.empty else INK,
        gid="control",
    )


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


def _part(omit: str) -> str:
    return labels.describe("omit", omit)
