"""One checkpoint of each strategy on one time axis: what training and the checkpoint do at every moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.answer import labels
from ckptbench.answer.setups import SEPARATOR, SYSTEM, ordered, per_framework, with_hardware
from ckptbench.figures import OWN_SAVES
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.disturbed import COLUMN, MARK, with_disturbed
from ckptbench.figures.kit.panels import (
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    folded,
    legend,
    nothing_to_show,
)
from ckptbench.figures.kit.parts import (
    BLOCKED,
    CAPTURE,
    CHECKSUM,
    COMMIT,
    END_WAITS,
    EVALUATION,
    REMOVAL,
    SAVE_WAITS,
    SYNC,
    UPDATE_WAITS,
    WRITE,
    Part,
)
from ckptbench.figures.kit.style import INK, PAGE_IN, look
from ckptbench.matrix.levels import LEVELS

FIGURE = {
    "title": "One checkpoint of each strategy",
    "tables": ("timeline", "runs", "machine", "provenance"),
    "of": "timed checkpoints",
    "own": True,
}
NOTHING = "No run that can be timed wrote a checkpoint: there is no timeline to show."
READING = (
    "The checkpoint of each strategy whose stall is the median, from the step before it to the second step after it was {done}, or to the end of the epoch."
    " Upper lane of a rank (the first and the last are shown): training; lower lanes: the checkpoint, of several levels one each: {levels}; diamond: from here on"
    " {durable}. A lane's times count from the start of its own save, as clocks of several hosts cannot be compared. Long steps are cut at the edges; paler"
    " parts are of the checkpoint before or after; the table timeline has the other setups"
)
WORDS = {"done": "committed", "durable": "it survives a power cut"}
WORDS_OWN = {
    "done": "finished",
    "durable": "the engine says that it is finished, which is not yet durable; one that goes on beside training without saying when it has its copy is drawn as"
    " written from its start",
}
TRAINING: Mapping[str, Part] = {
    "": BLOCKED,
    "update": UPDATE_WAITS,
    "save": SAVE_WAITS,
    "removal": REMOVAL,
    "end": END_WAITS,
}
"""What blocks training, by the reason of the hold; of a save there is none."""
PROGRESS = ("step", "evaluation")
"""Kinds of spans that are of no checkpoint."""
BEHIND: Mapping[str, Part] = {
    "capture": CAPTURE,
    "write": WRITE,
    "sync": SYNC,
    "checksum": CHECKSUM,
    "commit": COMMIT,
    "removal": REMOVAL,
}
ONE_PICTURE = (*SYSTEM, "ranks", "interval")
"""Columns in which all strategies that are shown are equal."""
LANE_IN = 0.115
BETWEEN_RANKS, BETWEEN_STRATEGIES = 0.35, 0.9
"""Room below the lanes of a rank and of a strategy, in lanes."""
LANE = 0.88
"""Height of what is drawn in a lane, in lanes."""
PALE = 0.3
BEFORE, AFTER = 0.25, 0.5
"""How much of the time axis may show what is before and after the longest checkpoint, as shares of its length."""
STEP_ALPHA = 0.45


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `timeline` and `provenance`."""
    if tables["timeline"].empty:
        return nothing_to_show(NOTHING)
    rows = _apart(_chosen(with_hardware(with_disturbed(tables["timeline"], tables))))
    own = OWN_SAVES in tables
    levels = ", ".join(_levels(rows)) or "none"
    reading = READING.format(levels=levels, **(WORDS_OWN if own else WORDS))
    text = caption(rows, tables["provenance"], reading, ONE_PICTURE)
    panels = [(framework, list(_lanes(own_rows))) for framework, own_rows in per_framework(rows)]
    heights = [lanes[-1].bottom * LANE_IN for _, lanes in panels]
    figure = PaperFigure(PAGE_IN, sum(heights) + len(panels) * PANEL_EDGES_IN + LINE_IN, text)
    grid = figure.subplots(len(panels), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, (framework, lanes) in zip(grid, panels, strict=True):
        axes.set_title(labels.name(framework))
        _draw_panel(axes, lanes, look(framework).color)
    grid[-1].set_xlim(*_ends_s(rows))
    grid[-1].set_xlabel("Time since the start of the save (s)")
    figure.marks_disturbed = bool(rows[COLUMN].any())
    legend(figure, _legend(rows, own))
    return figure


def _chosen(every: pd.DataFrame) -> pd.DataFrame:
    """One setup of each framework and strategy, in order, and of several ranks the first and the last.

    All are equal in ONE_PICTURE: in what most strategies of most frameworks have; then in the most ranks, as these show
    how strategies share the work, and in the longest interval, where no save is in the way of the next.
    """
    columns = [name for name in ONE_PICTURE if name in every]
    pictures = [
        (own[["framework", "strategy"]].drop_duplicates().shape[0], picture, own)
        for picture, own in groups(every, columns)
    ]
    _, _, own = max(
        reversed(pictures),
        key=lambda each: (each[0], each[1]["ranks"], labels.order("interval", each[1]["interval"])),
    )
    in_order = ordered(own, ("framework", "strategy", "format"))
    first = in_order.groupby(["framework", "strategy"])["format"].transform("first")
    shown = in_order[in_order["format"] == first]
    return shown[shown["rank"].isin([0, shown["ranks"].max() - 1])]


def _apart(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the capture before the write, and without it where training waits for the write anyway."""
    of_save = ["run", "rank", "of_step"]

    def end_s(kind: str) -> pd.Series:
        ends = rows["end_s"].where(rows["kind"] == kind)
        return ends.groupby([rows[name] for name in of_save]).transform("max")

    captured_s, is_copied = end_s("capture"), end_s("save") < end_s("write")
    moved = (rows["kind"] == "write") & is_copied
    starts = rows["start_s"].mask(moved, rows["start_s"].clip(lower=captured_s))
    return rows.assign(start_s=starts)[(rows["kind"] != "capture") | is_copied]


def _ends_s(rows: pd.DataFrame) -> tuple[float, float]:
    """Ends of the time axis: the windows, as far as they are not far longer than the checkpoints in them."""
    own = rows[~rows["kind"].isin(PROGRESS) & ~_is_other(rows)]
    longest_s = own["end_s"].max()
    first_s, last_s = rows["start_s"].min(), rows["end_s"].max()
    return max(first_s, -BEFORE * longest_s), min(last_s, (1 + AFTER) * longest_s)


def _is_other(rows: pd.DataFrame) -> pd.Series:
    """Those that are of another checkpoint."""
    return ~rows["kind"].isin(PROGRESS) & (rows["of_step"] != rows["step"])


def _levels(rows: pd.DataFrame) -> list[str]:
    return [level for level in LEVELS if (rows["level"] == level).any()]


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of one rank: `top` is the place of the upper one, below it is one for each level."""

    label: str
    top: float
    bottom: float
    levels: list[str]
    rows: pd.DataFrame


def _lanes(rows: pd.DataFrame) -> Iterator[_Lanes]:
    top = 0.0
    several = rows["rank"].nunique() > 1
    for strategy in rows["strategy"].unique():
        of_strategy = rows[rows["strategy"] == strategy]
        levels = _levels(of_strategy)
        for rank in sorted(of_strategy["rank"].unique()):
            name = labels.describe("strategy", strategy)
            whose = f"rank {rank}" if rank else f"{name}{SEPARATOR}rank 0"
            bottom = top + 1 + len(levels)
            own = of_strategy[of_strategy["rank"] == rank]
            label = whose if several else name
            yield _Lanes(
                folded(f"{label} {MARK}" if own[COLUMN].any() else label), top, bottom, levels, own
            )
            top = bottom + BETWEEN_RANKS
        top += BETWEEN_STRATEGIES - BETWEEN_RANKS


def _draw_panel(axes: Axes, lanes: list[_Lanes], color: str) -> None:
    for each in lanes:
        _draw_training(axes, each, color)
        for place, level in enumerate(each.levels, start=1):
            _draw_behind(axes, each, each.top + place, level)
    axes.set_ylim(lanes[-1].bottom, 0)
    axes.set_yticks(
        [(each.top + each.bottom) / 2 for each in lanes], [each.label for each in lanes]
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _draw_training(axes: Axes, lanes: _Lanes, color: str) -> None:
    rows = lanes.rows
    steps = Part("", color)
    for span in records(rows[rows["kind"] == "step"]):
        _draw_span(axes, lanes.top, span, steps, alpha=STEP_ALPHA, edgecolor="white")
    for span in records(rows[rows["kind"] == "evaluation"]):
        _draw_span(axes, lanes.top, span, EVALUATION)
    for span in records(rows[rows["kind"].isin(["save", "hold"])]):
        _draw_span(axes, lanes.top, span, TRAINING[span["why"]], alpha=_alpha(span))


def _draw_behind(axes: Axes, lanes: _Lanes, y: float, level: str) -> None:
    rows = lanes.rows
    own = (rows["level"] == level) | (rows["kind"] == "capture")
    if level == lanes.levels[-1]:
        own |= rows["kind"] == "removal"
    for span in records(rows[own]):
        _draw_span(axes, y, span, BEHIND[span["kind"]], alpha=_alpha(span))
        if span["kind"] == "commit" and span["of_step"] == span["step"]:
            axes.plot(span["end_s"], y + LANE / 2, "D", color=INK, markersize=2.5, gid="durable", clip_on=False, zorder=5)  # fmt: skip


def _alpha(span: Mapping[str, Any]) -> float:
    return 1.0 if span["of_step"] == span["step"] else PALE


def _draw_span(axes: Axes, y: float, span: Mapping[str, Any], part: Part, *, alpha: float = 1.0, edgecolor: str = INK) -> None:  # fmt: skip
    axes.barh(
        y,
        span["end_s"] - span["start_s"],
        LANE,
        span["start_s"],
        align="edge",
        color=part.grey,
        edgecolor=edgecolor,
        hatch=part.hatch,
        alpha=alpha,
        gid=span["kind"],
    )


def _legend(rows: pd.DataFrame, own: bool) -> list[Artist]:
    # What has no length, as the end of a save that was seen from outside, cannot be seen.
    kinds, whys = set(rows.loc[rows["end_s"] > rows["start_s"], "kind"]), {"", *rows["why"]}
    parts = dict.fromkeys(
        [
            *(part for why, part in TRAINING.items() if why in whys),
            *([EVALUATION] if "evaluation" in kinds else []),
            *(part for kind, part in BEHIND.items() if kind in kinds),
        ]
    )
    of_what = "training" if own else "framework"
    step = Patch(facecolor=INK, alpha=STEP_ALPHA, label=f"step (colour of the {of_what})")
    name = "finished" if own else "durable"
    durable = Line2D([], [], color=INK, marker="D", linestyle="", markersize=2.5, label=name)
    return [step, *(part.handle() for part in parts), durable]
