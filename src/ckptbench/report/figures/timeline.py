"""One checkpoint of each strategy on one time axis: what training and the checkpoint do at every moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ckptbench.analysis.tables.grouping import groups
from ckptbench.matrix.levels import LEVELS
from ckptbench.report.answer import labels
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    SEPARATOR,
    ordered,
    per_framework,
    with_hardware,
)
from ckptbench.report.figures.kit.captions import caption
from ckptbench.report.figures.kit.disturbed import DISTURBED, MARK, with_disturbed
from ckptbench.report.figures.kit.panels import (
    BELOW,
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    entry,
    folded,
    legend,
    nothing_to_show,
)
from ckptbench.report.figures.kit.parts import (
    BLOCKED,
    CAPTURE,
    COMMIT,
    EVALUATION,
    REMOVAL,
    SYNC,
    VISIBLE,
    WAITS,
    WRITE,
    Part,
)
from ckptbench.report.figures.kit.style import INK, PAGE_IN, look

FIGURE = {
    "title": "One checkpoint of each strategy",
    "tables": ("timeline", "runs", "machine", "provenance"),
    "of": "timed checkpoints",
    "about": "cost",
}
NOTHING = "No timed run wrote a checkpoint, so there is no timeline to show."
READING = (
    "For each strategy the checkpoint with the median stall, of those with the most steps behind them in their epoch, from the step before "
    "it to the second step after its commit, or to the end of the epoch. Upper lane of a rank (ranks 0 and 1 are shown): training; lower lanes: the checkpoint, one lane per level: "
    "{levels}; diamond: from here on it survives a power cut. Times count from the start of the save on that rank, as clocks of several"
    " hosts cannot be compared. Dots: the rest is not shown. Long steps are cut at the edges; paler parts belong to the checkpoint "
    "before or after. Table timeline has the other setups"
)
PARTS: Mapping[str, Part] = {
    "step": Part("step", None),
    "evaluation": EVALUATION,
    "save": BLOCKED,
    "hold": WAITS,
    "capture": CAPTURE,
    "write": WRITE,
    "sync": SYNC,
    "checksum": COMMIT,
    "commit": COMMIT,
    "removal": REMOVAL,
}
"""By the kind of a span."""
PROGRESS = ("step", "evaluation")
"""Kinds of spans that are of no checkpoint."""
IN_TRAINING = (*PROGRESS, "save", "hold")
"""Kinds of spans in the upper lane of a rank."""
ONE_PICTURE = (*PANEL_COLUMNS, "ranks", "interval")
"""Columns in which all strategies that are shown are equal."""
LANE_IN = 0.115
BETWEEN_RANKS, BETWEEN_STRATEGIES = 0.35, 0.9
"""Room below the lanes of a rank and of a strategy, in lanes."""
LANE = 0.88
"""Height of what is drawn in a lane, in lanes."""
PALE = 0.3
BEFORE, AFTER = 0.25, 0.5
"""How much of the time axis may show what is before and after the longest checkpoint, as shares of its length."""
EDGE = 0.02
"""Room for what stands at the last moment, as a share of the time axis."""
STEP_ALPHA = 0.45


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `timeline` and `provenance`."""
    if tables["timeline"].empty:
        return nothing_to_show(NOTHING)
    rows = _with_others(_chosen(with_hardware(with_disturbed(tables["timeline"], tables))))
    levels = ", ".join(_levels(rows)) or "none"
    reading = READING.format(levels=levels)
    text = caption(rows, tables["provenance"], reading, ONE_PICTURE)
    panels = [
        (framework, *_in_lanes(of_framework)) for framework, of_framework in per_framework(rows)
    ]
    heights = [LANE_IN * bottom for *_, bottom in panels]
    figure = PaperFigure(PAGE_IN, sum(heights) + len(panels) * PANEL_EDGES_IN + LINE_IN, text)
    grid = figure.subplots(len(panels), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, (framework, spans, names, bottom) in zip(grid, panels, strict=True):
        axes.set_title(labels.name(framework))
        _draw_spans(axes, spans, look(framework).color)
        axes.set_ylim(bottom, 0)
        axes.set_yticks(list(names), list(names.values()))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
    begin_s, end_s = _ends_s(rows)
    grid[-1].set_xlim(begin_s, end_s)
    for axes, (_, spans, *_) in zip(grid, panels, strict=True):
        _say_it_goes_on(axes, spans, end_s)
    grid[-1].set_xlabel("Time since the start of the save (s)")
    figure.marks_disturbed = bool(rows[DISTURBED].any())
    legend(figure, _of_training(parts := _seen(rows, begin_s, end_s)))
    legend(figure, _of_checkpoints(parts), BELOW)
    return figure


def _chosen(every: pd.DataFrame) -> pd.DataFrame:
    """One setup of each framework and strategy, in order, and of several ranks 0 and 1.

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
    shown = ordered(own, ("framework", "strategy", "format", "recovery"))
    for column in ("format", "recovery"):
        first = shown.groupby(["framework", "strategy"])[column].transform("first")
        shown = shown[shown[column] == first]
    return shown[shown["rank"].isin([0, 1])]


def _with_others(rows: pd.DataFrame) -> pd.DataFrame:
    """With `other`, whether a span is of another checkpoint. The capture ends before the write begins; it is left out where
    training waits for the write anyway."""

    def end_s(kind: str) -> pd.Series:
        ends = rows["end_s"].where(rows["kind"] == kind)
        return ends.groupby([rows[name] for name in ("run", "rank", "of_step")]).transform("max")

    is_copied = end_s("save") < end_s("write")
    moved = (rows["kind"] == "write") & is_copied
    return rows.assign(
        start_s=rows["start_s"].mask(moved, rows["start_s"].clip(lower=end_s("capture"))),
        other=~rows["kind"].isin(PROGRESS) & (rows["of_step"] != rows["step"]),
    )[(rows["kind"] != "capture") | is_copied]


def _ends_s(rows: pd.DataFrame) -> tuple[float, float]:
    """Ends of the time axis: the windows, as far as they are not far longer than the checkpoints in them."""
    longest_s = rows.loc[~rows["kind"].isin(PROGRESS) & ~rows["other"], "end_s"].max()
    first_s, last_s = rows["start_s"].min(), rows["end_s"].max()
    last_s += EDGE * (last_s - first_s)
    return max(first_s, -BEFORE * longest_s), min(last_s, (1 + AFTER) * longest_s)


def _levels(rows: pd.DataFrame) -> list[str]:
    return [level for level in LEVELS if (rows["level"] == level).any()]


def _in_lanes(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[float, str], float]:
    """The spans with `y`, their lane; the names of ranks by their places; and where the last lane ends.

    Of each rank the upper lane is training; below it is one for each level.
    """
    spans, names, top, bottom = [], {}, 0.0, 0.0
    for strategy, of_strategy in rows.groupby("strategy", sort=False):
        levels = _levels(of_strategy)
        for rank, own in of_strategy.groupby("rank"):
            training = own["kind"].isin(IN_TRAINING)
            spans.append(own[training].assign(y=top))
            for place, level in enumerate(levels, start=1):
                ends = ["capture"] if level != levels[-1] else ["capture", "removal"]
                here = own["level"].eq(level) | own["kind"].isin(ends)
                spans.append(own[here & ~training].assign(y=top + place))
            bottom = top + 1 + len(levels)
            name = labels.describe("strategy", strategy)
            if rows["rank"].nunique() > 1:
                name = f"{name}{SEPARATOR}rank 0" if rank == 0 else f"rank {rank}"
            names[(top + bottom) / 2] = folded(f"{name} {MARK}" if own[DISTURBED].any() else name)
            top = bottom + BETWEEN_RANKS
        top += BETWEEN_STRATEGIES - BETWEEN_RANKS
    return pd.concat(spans), names, bottom


def _draw_spans(axes: Axes, spans: pd.DataFrame, color: str) -> None:
    for name, part in PARTS.items():
        for other, own in spans[spans["kind"] == name].groupby("other"):
            axes.barh(
                own["y"],
                own["end_s"] - own["start_s"],
                LANE,
                own["start_s"],
                align="edge",
                color=part.color or color,
                edgecolor="white" if name == "step" else INK,
                hatch=part.hatch,
                alpha=STEP_ALPHA if name == "step" else PALE if other else 1,
                gid=name,
            )
    commits = spans[(spans["kind"] == "commit") & ~spans["other"]]
    axes.plot(commits["end_s"], commits["y"] + LANE / 2, "D", color=INK, markersize=2.5, gid="durable", clip_on=False, zorder=5)  # fmt: skip


def _say_it_goes_on(axes: Axes, spans: pd.DataFrame, end_s: float) -> None:
    """Dots where a lane of training ends before the axis does."""
    training = spans[spans["kind"].isin(IN_TRAINING)]
    lanes = training.groupby("y", as_index=False)["end_s"].max()
    for y, last_s in lanes[["y", "end_s"]].to_numpy(float):
        if last_s < end_s:
            axes.annotate("\N{HORIZONTAL ELLIPSIS}", (last_s, y + LANE / 2), (2, 0), textcoords="offset points", va="center", gid="goes on")  # fmt: skip


def _seen(rows: pd.DataFrame, begin_s: float, end_s: float) -> list[Part]:
    """The parts that can be seen on an axis with these ends."""
    inside = rows["end_s"].clip(upper=end_s) - rows["start_s"].clip(lower=begin_s)
    wide = set(rows.loc[inside >= VISIBLE * (end_s - begin_s), "kind"])
    return [*dict.fromkeys(part for kind, part in PARTS.items() if kind in wide)]


def _of_training(parts: Sequence[Part]) -> list[Artist]:
    step = Patch(facecolor=INK, alpha=STEP_ALPHA, label="step (colour of the framework)")
    lane = {PARTS[kind] for kind in IN_TRAINING} - {PARTS["step"]}
    return [step, *(part.handle() for part in parts if part in lane)]


def _of_checkpoints(parts: Sequence[Part]) -> list[Artist]:
    durable = entry("durable", marker="D", linestyle="", markersize=2.5)
    lane = {PARTS[kind] for kind in IN_TRAINING}
    return [*(part.handle() for part in parts if part not in lane), durable]
