"""The table of trainers as a scoreboard: a sign for each verdict, and the costs as bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from ckptbench.config.trainers import COLUMNS, COST
from ckptbench.report.figures.kit.style import FAINT, INK, PAGE_IN, paper
from ckptbench.trainers.cell import CANNOT_TELL, DOES_NOT_APPLY, NO, YES
from ckptbench.trainers.table import Line, ordered

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Sign:
    """That tells the verdict without its colour as well."""

    letter: str
    color: str
    ink: str


SIGNS = {
    YES: Sign("✓", "#cfe3f5", "#0b4f8a"),
    NO: Sign("✗", "#d55e00", "#ffffff"),
    CANNOT_TELL: Sign("?", "#ececec", INK),
    DOES_NOT_APPLY: Sign("-", "#ffffff", FAINT),
}
"""Blue and vermilion (Okabe and Ito), one pale and one dark, are apart for colour-blind people, and in grey."""
BARS = {"stall_s": ("stall (ms)", 1e3), "slowdown_s": ("slowdown (ms)", 1e3), "bytes": ("bytes / state", 1.0), "memory_bytes": ("memory (MB)", 1e-6)}  # fmt: skip
"""Of one save."""
BAR = "#56b4e9"
ROW_IN, HEAD_IN, FOOT_IN, LETTER_IN = 0.19, 1.1, 0.3, 0.062
WIDEST_IN, LEAST_CELLS = 0.42, 6
"""Of a cell; and so many are as wide as the words at the head and the legend."""
ANGLE = 50
BAR_WIDTH = 1.9
"""Of a column of bars, in cells."""


def draw(table: Sequence[Line], stem: Path) -> None:
    """Write `<stem>.pdf`, `.png`, and what stands beside them, `.txt`."""
    rows = [*ordered(table).values()]
    columns = [name for name in COLUMNS if name != COST and any(name in row for row in rows)]
    bars = [*BARS] if any(COST in row for row in rows) else []
    with paper():
        longest = max(len(next(iter(row.values())).title) for row in rows)
        cells = len(columns) + BAR_WIDTH * len(bars)
        cell_in = min(WIDEST_IN, (PAGE_IN - LETTER_IN * longest) / cells)
        figure = plt.figure(
            figsize=(
                LETTER_IN * longest + cell_in * max(cells, LEAST_CELLS),
                HEAD_IN + FOOT_IN + ROW_IN * len(rows),
            )
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(-LETTER_IN * longest / cell_in, max(cells, LEAST_CELLS))
        axes.set_ylim(len(rows) + FOOT_IN / ROW_IN, -HEAD_IN / ROW_IN)
        axes.axis("off")
        _heads(axes, columns, bars)
        for place, row in enumerate(rows):
            _row(axes, place, row, columns, 0.05 / cell_in)
        for number, name in enumerate(bars):
            _bars(axes, len(columns) + BAR_WIDTH * number, rows, name)
        _separate(axes, rows)
        _legend(axes, len(rows), cell_in)
        stem.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})
        figure.savefig(stem.with_suffix(".png"), metadata={"Software": None})
        plt.close(figure)
    stem.with_suffix(".txt").write_text(fill(caption(table), 100) + "\n", encoding="utf-8")


def caption(table: Sequence[Line]) -> str:
    dates = sorted({line.date for line in table})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (
        "What each trainer keeps at a restart, a kill and a stop, and what one save costs, on two CPU cores. A tick: it keeps what the column names. "
        f"Stall and slowdown are medians of one run. Measured on {when}; trainers.csv has the words of each verdict, the versions, and the command that repeats it."
    )


def _heads(axes: Axes, columns: Sequence[str], bars: Sequence[str]) -> None:
    for place, name in enumerate(columns):
        axes.text(place + 0.4, -0.25, COLUMNS[name], rotation=ANGLE, ha="left", va="bottom")
    for number, name in enumerate(bars):
        axes.text(len(columns) + BAR_WIDTH * number + 0.25, -0.25, BARS[name][0], ha="left", va="bottom", rotation=ANGLE)  # fmt: skip


def _row(axes: Axes, place: int, row: dict[str, Line], columns: Sequence[str], gap: float) -> None:  # fmt: skip
    first = next(iter(row.values()))
    axes.text(-gap, place + 0.5, first.title, ha="right", va="center_baseline")
    for number, name in enumerate(columns):
        if name not in row:
            continue
        sign = SIGNS[row[name].verdict]
        axes.add_patch(Rectangle((number + 0.04, place + 0.06), 0.92, 0.88, facecolor=sign.color, edgecolor="none"))  # fmt: skip
        axes.text(number + 0.5, place + 0.53, sign.letter, ha="center", va="center", color=sign.ink, fontsize=8, fontweight="bold")  # fmt: skip


def _value(line: Line | None, name: str) -> float | None:
    if line is None:
        return None
    if name == "bytes":
        return line.file_bytes / line.state_bytes if line.file_bytes and line.state_bytes else None
    value: float | None = getattr(line, name)
    return None if value is None else value * BARS[name][1]


def _bars(axes: Axes, left: float, rows: Sequence[dict[str, Line]], name: str) -> None:
    values = [_value(row.get(COST), name) for row in rows]
    most = max([value for value in values if value is not None], default=0.0) or 1.0
    for place, value in enumerate(values):
        if value is None:
            axes.text(left + 0.25, place + 0.53, "-", va="center", color=FAINT)
            continue
        length = 0.95 * max(0.0, value) / most
        axes.add_patch(Rectangle((left + 0.25, place + 0.2), length, 0.6, facecolor=BAR, edgecolor="none"))  # fmt: skip
        axes.text(left + 0.32 + length, place + 0.53, _short(value), va="center", fontsize=7)


def _short(value: float) -> str:
    """Steps beside a save can be faster by chance."""
    if value < 0:
        return "none seen"
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _separate(axes: Axes, rows: Sequence[dict[str, Line]]) -> None:
    """The controls from the trainers."""
    controls = [bool(next(iter(row.values())).control) for row in rows]
    if True in controls and not all(controls):
        axes.axhline(controls.index(True), color=FAINT, linewidth=0.6)


def _legend(axes: Axes, rows: int, cell_in: float) -> None:
    left, middle = axes.get_xlim()[0] + 0.05 / cell_in, rows + FOOT_IN / ROW_IN / 2
    width = 0.25 / cell_in
    for verdict, sign in SIGNS.items():
        axes.add_patch(Rectangle((left, middle - 0.4), width, 0.8, facecolor=sign.color, edgecolor=FAINT, linewidth=0.3))  # fmt: skip
        axes.text(left + width / 2, middle + 0.03, sign.letter, ha="center", va="center", color=sign.ink, fontweight="bold")  # fmt: skip
        axes.text(left + 1.2 * width, middle, verdict, va="center_baseline")
        left += 2 * width + LETTER_IN * len(verdict) / cell_in
