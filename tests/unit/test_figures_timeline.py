"""The timeline of one checkpoint: its lanes, and which setup is shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from figure_parts import caption_of, lines, row_labels
from figure_tables import Study, together
from matplotlib.axes import Axes

from ckptbench.report.figures import FIGURES


def drawn(axes: Axes, kind: str) -> list[tuple[float, float, float]]:
    """Of each span of this kind the place of its lane, its start and its end, rounded."""
    bars = [patch for patch in axes.patches if patch.get_gid() == kind]
    return [
        (round(bar.get_y(), 2), round(bar.get_x(), 3), round(bar.get_x() + bar.get_width(), 3))
        for bar in bars
    ]


def test_a_timeline_has_a_lane_for_training_and_one_for_the_checkpoint() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), strategies=("native", "async"))
    table = study.tables()["timeline"]
    figure = FIGURES["timeline"].draw({**study.tables(), "timeline": table})
    (axes,) = figure.axes
    assert row_labels(axes) == [
        f"{name} · rank 0" if rank == 0 else f"rank {rank}"
        for name in ("native", "async")
        for rank in (0, 1)
    ]
    at_s = table.set_index(["strategy", "kind", "rank"]).sort_index()["end_s"]

    def end_s(*key: object) -> float:
        return round(float(np.atleast_1d(at_s[key])[0]), 3)

    tops = [0, 2.35, 5.25, 7.6]
    whose = [("native", 0), ("native", 1), ("async", 0), ("async", 1)]
    assert drawn(axes, "save") == [
        (top, 0, end_s(name, "save", rank)) for top, (name, rank) in zip(tops, whose, strict=True)
    ]
    # Only a copy that is written later is a capture; `native` writes the state itself.
    assert drawn(axes, "capture") == [(top + 1, 0, end_s(*who, 0)) for top, who in [(5.25, ("async", "capture")), (7.6, ("async", "capture"))]]  # fmt: skip
    starts = [0, 0, end_s("async", "capture", 0), end_s("async", "capture", 1)]
    assert [start for _, start, _ in drawn(axes, "write")] == starts
    assert [lane for lane, *_ in drawn(axes, "commit")] == [1, 6.25]
    assert [lane for lane, *_ in drawn(axes, "hold")] == [5.25, 7.6]
    (durable,) = lines(axes, "durable")
    assert list(durable.get_xdata()) == [end_s(name, "commit", 0) for name in ("native", "async")]


def test_a_timeline_shows_what_most_strategies_have_with_the_most_ranks() -> None:
    tables = together(
        Study(frameworks=("pytorch",), ranks=(1, 4), strategies=("native", "async"), intervals=("s5", "s50")),
        Study(frameworks=("pytorch",), ranks=(8,)),
    )  # fmt: skip
    figure = FIGURES["timeline"].draw(tables)
    assert [label.split()[-1] for label in row_labels(figure.axes[0])] == ["0", "1", "0", "1"]
    text = caption_of(figure)
    assert "4 ranks, every 50 steps" in text
    alone = FIGURES["timeline"].draw(Study(frameworks=("pytorch",), ranks=(1,)).tables())
    assert row_labels(alone.axes[0]) == ["native"]


def test_steps_that_are_far_longer_than_the_checkpoint_are_cut() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native", "async")).tables()
    table = tables["timeline"]
    before = (table["kind"] == "step") & (table["end_s"] == 0)
    table.loc[before, "start_s"] = -20.0
    table.loc[table["kind"].eq("step") & ~before, "end_s"] = 40.0
    figure = FIGURES["timeline"].draw({**tables, "timeline": table})
    longest_s = table[table["kind"] == "removal"]["end_s"].max()
    assert figure.axes[0].get_xlim() == pytest.approx((-0.25 * longest_s, 1.5 * longest_s))


def test_a_state_that_is_written_while_training_waits_is_no_capture() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native",)).tables()
    table = tables["timeline"]
    table.loc[table["kind"] == "capture", "end_s"] -= 1e-5  # noted just before the write
    (axes,) = FIGURES["timeline"].draw({**tables, "timeline": table}).axes
    assert not drawn(axes, "capture")
    assert [start for _, start, _ in drawn(axes, "write")] == [0]


def test_a_timeline_has_a_lane_for_each_level_and_pale_parts_of_other_checkpoints() -> None:
    strategies = ("native", "async")
    tables = Study(frameworks=("pytorch",), ranks=(1,), strategies=strategies).tables()
    shared = tables["timeline"]
    behind = shared["strategy"] == "async"
    near = shared[behind & (shared["level"] == "shared")].assign(level="memory")
    later = shared[behind & (shared["kind"] == "save")].assign(of_step=99, start_s=1.0, end_s=1.1)
    table = pd.concat([near, shared, later], ignore_index=True)
    figure = FIGURES["timeline"].draw({**tables, "timeline": table})
    assert [lane for lane, *_ in drawn(figure.axes[0], "commit")] == [1, 3.9, 4.9]
    assert [lane for lane, *_ in drawn(figure.axes[0], "removal")] == [1, 4.9]
    saves = [patch for patch in figure.axes[0].patches if patch.get_gid() == "save"]
    assert [patch.get_alpha() for patch in saves] == [1, 1, 0.3]
    assert "one lane per level: memory, shared" in caption_of(figure)


def test_evaluation_is_drawn_in_the_lane_of_training_and_named() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,), strategies=("async",)).tables()
    table = tables["timeline"]
    step = table[table["kind"] == "step"].iloc[[-1]]
    more = step.assign(kind="evaluation", start_s=step["end_s"], end_s=step["end_s"] + 0.1)
    shown = pd.concat([table, more], ignore_index=True)
    figure = FIGURES["timeline"].draw({**tables, "timeline": shown})
    (axes,) = figure.axes
    assert [lane for lane, *_ in drawn(axes, "evaluation")] == [0]
    assert [patch.get_alpha() for patch in axes.patches if patch.get_gid() == "evaluation"] == [1]  # fmt: skip
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "evaluation" in names
