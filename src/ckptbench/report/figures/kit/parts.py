"""Parts of a time or a size: greys where colours are frameworks, else colours that differ in grey too; all told apart by hatches; waits are white."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ckptbench.report.figures.kit.style import GREYS, INK


@dataclass(frozen=True, slots=True)
class Part:
    """What a part is called, its colour, its hatch, and the columns that it adds up."""

    name: str
    color: str | None
    """None: that of the framework."""
    hatch: str = ""
    columns: tuple[str, ...] = ()

    def handle(self, own: str = INK) -> Patch:
        """Its line in a legend."""
        color = self.color or own
        return Patch(facecolor=color, edgecolor=INK, hatch=self.hatch, label=self.name)


VISIBLE = 0.015
"""Share of an axis from which on a part can be seen."""
BAR = 0.6
"""Height of a bar, as a part of its row."""


def stack(axes: Axes, rows: pd.DataFrame, parts: Mapping[str, Part], own: str = INK) -> pd.Series:
    """Bars of these columns end to end, of each row at its `y`; returns their ends. What is negative stands left of zero."""
    ends = 0.0 * rows["y"]
    for column, part in parts.items():
        left, color = ends.where(rows[column] >= 0, 0.0), part.color or own
        axes.barh(rows["y"], rows[column], BAR, left, color=color, edgecolor=INK, hatch=part.hatch, gid=column)  # fmt: skip
        ends = ends + rows[column].clip(lower=0)
    return ends


def seen(parts: Mapping[str, Part], shares: pd.DataFrame) -> list[Part]:
    """The parts that a legend names, each once: those that in any row take a share of the axis that can be seen."""
    widest = shares.abs().max()
    return [*dict.fromkeys(part for name, part in parts.items() if widest[name] >= VISIBLE)]


def write_beside(axes: Axes, places: Iterable[tuple[float, float]], words: Iterable[str], gid: str) -> None:  # fmt: skip
    """Words right of the ends of bars, which are at these places."""
    for place, text in zip(places, words, strict=True):
        axes.annotate(
            text, place, (3, 0), textcoords="offset points", va="center", gid=gid, bbox=UNDER
        )


UNDER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""Behind words on a grid."""

CAPTURE = Part("capture", GREYS[3], "//////")
WRITE = Part("write", GREYS[1])
SYNC = Part("sync", GREYS[3], "\\\\\\\\\\\\")
COMMIT = Part("checksum, commit", GREYS[5], "||||||")
WAITS = Part("training waits", GREYS[5], "......")
REMOVAL = Part("removal", GREYS[5], "------")
BLOCKED = Part("save blocks training", INK)
EVALUATION = Part("evaluation", GREYS[4], "++++")
