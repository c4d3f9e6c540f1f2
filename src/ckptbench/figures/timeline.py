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

from ckptbench.analysis.cost.timeline import STEPS_AFTER
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.answer import labels
from ckptbench.answer.setups import SEPARATOR, SYSTEM, ordered, per_framework, with_hardware
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.disturbed import COLUMN, MARK, any_disturbed, with_disturbed
from ckptbench.figures.kit.outside import is_own
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
from ckptbench.matrix.levels import LEVELS, SHARED

READING = (
    "The checkpoint of each strategy whose stall is the median, from the step before it to the second step after its commit."
    " Upper lane of a rank: training; lower lane: the checkpoint; diamond: from here on it survives a power cut. A lane's times count from the start"
    " of its own save, as clocks of several hosts cannot be compared"
)
READING_OWN = (
    "The checkpoint of each strategy whose stall is the median, from the step before it to the second step after it was finished."
    " Upper lane of a rank: training; lower lane: the checkpoint; diamond: from here on the engine says that it is finished, which is not yet durable. A lane's times"
    " count from the start of its own save. A save that goes on beside training without saying when it has its copy is drawn as written from its start"
)
SOONER = "fewer steps follow where the epoch ended before: {}"
CUT = "long steps are cut at the edges"
PALER = "paler parts are of the checkpoint before or after"
OTHERS = "the table timeline has the other setups"
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
    every = tables["timeline"]
    if every.empty:
        text = caption(every, tables["provenance"], "")
        return nothing_to_show(
            "No run that can be timed wrote a checkpoint: there is no timeline to show.", text
        )
    rows = _apart(_chosen(with_hardware(with_disturbed(every, tables))))
    own = is_own(tables)
    reading = READING_OWN if own else READING
    text = caption(rows, tables["provenance"], _reading(rows, every, reading), ONE_PICTURE)
    panels = [(framework, list(_lanes(own))) for framework, own in per_framework(rows)]
    heights = [lanes[-1].bottom * LANE_IN for _, lanes in panels]
    edges_in = len(panels) * PANEL_EDGES_IN + LINE_IN
    figure = PaperFigure(PAGE_IN, sum(heights) + edges_in, text)
    grid = figure.add_gridspec(len(panels), 1, height_ratios=heights)
    for place, (framework, lanes) in enumerate(panels):
        axes = figure.add_subplot(grid[place], sharex=figure.axes[0] if place else None)
        axes.set_title(labels.name(framework))
        _draw_panel(axes, lanes, look(framework).color)
        axes.tick_params(labelbottom=place == len(panels) - 1)
    axes.set_xlim(*_ends_s(rows))
    axes.set_xlabel("Time since the start of the save (s)")
    figure.marks_disturbed = any_disturbed(rows)
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


def _reading(rows: pd.DataFrame, every: pd.DataFrame, reading: str) -> str:
    ranks = rows["ranks"].max()
    by_level = [
        f"the lower lanes of {labels.describe('strategy', key['strategy'])} are the levels {', '.join(levels)}, each written and committed after the one before it"
        for key, own in groups(rows, ["strategy"])
        if (levels := _levels(own)) not in ([], [SHARED])
    ]
    parts = [
        reading,
        *by_level,
        *([f"of {ranks} ranks the first and the last are shown"] if ranks > 2 else []),
        *_sooner(rows),
        *([CUT] if _is_cut(rows) else []),
        *([PALER] if _is_other(rows).any() else []),
        *([OTHERS] if every["run"].nunique() > rows["run"].nunique() else []),
    ]
    return "; ".join(parts)


def _sooner(rows: pd.DataFrame) -> list[str]:
    """The checkpoints after whose commit fewer steps are shown."""
    several = rows["framework"].nunique() > 1
    names = [
        f"{labels.name(key['framework'])} " * several + labels.describe("strategy", key["strategy"])
        for key, own in groups(rows, ["framework", "strategy"])
        if _steps_after(own) < STEPS_AFTER
    ]
    return [SOONER.format(", ".join(names))] if names else []


def _steps_after(rows: pd.DataFrame) -> int:
    """How many steps are shown after the commit of a checkpoint, on the rank that commits last."""
    commits = rows[(rows["kind"] == "commit") & ~_is_other(rows)]
    last = commits.sort_values("end_s").iloc[-1]
    steps = rows[(rows["kind"] == "step") & (rows["rank"] == last["rank"])]
    return int((steps["start_s"] >= last["end_s"]).sum())


def _ends_s(rows: pd.DataFrame) -> tuple[float, float]:
    """Ends of the time axis: the windows, as far as they are not far longer than the checkpoints in them."""
    own = rows[~rows["kind"].isin(PROGRESS) & ~_is_other(rows)]
    longest_s = own["end_s"].max()
    first_s, last_s = rows["start_s"].min(), rows["end_s"].max()
    return max(first_s, -BEFORE * longest_s), min(last_s, (1 + AFTER) * longest_s)


def _is_cut(rows: pd.DataFrame) -> bool:
    return _ends_s(rows) != (rows["start_s"].min(), rows["end_s"].max())


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
    steps = rows[rows["kind"] == "step"]
    axes.barh(
        [lanes.top] * len(steps),
        steps["end_s"] - steps["start_s"],
        LANE,
        steps["start_s"],
        align="edge",
        color=color,
        alpha=STEP_ALPHA,
        edgecolor="white",
        gid="step",
    )
    for span in records(rows[rows["kind"] == "evaluation"]):
        _draw_span(axes, lanes.top, {**span, "of_step": span["step"]}, EVALUATION)
    for span in records(rows[rows["kind"].isin(["save", "hold"])]):
        _draw_span(axes, lanes.top, span, TRAINING[span["why"]])


def _draw_behind(axes: Axes, lanes: _Lanes, y: float, level: str) -> None:
    rows = lanes.rows
    own = (rows["level"] == level) | (rows["kind"] == "capture")
    if level == lanes.levels[-1]:
        own |= rows["kind"] == "removal"
    for span in records(rows[own]):
        _draw_span(axes, y, span, BEHIND[span["kind"]])
        if span["kind"] == "commit" and span["of_step"] == span["step"]:
            axes.plot(span["end_s"], y + LANE / 2, "D", color=INK, markersize=2.5, gid="durable", clip_on=False, zorder=5)  # fmt: skip


def _draw_span(axes: Axes, y: float, span: Mapping[str, Any], part: Part) -> None:
    axes.barh(
        y,
        span["end_s"] - span["start_s"],
        LANE,
        span["start_s"],
        align="edge",
        color=part.grey,
        edgecolor=INK,
        hatch=part.hatch,
        alpha=None if span["of_step"] == span["step"] else PALE,
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
