"""Strategies side by side: their measures, their names with options, and the room for them."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pandas as pd
import pytest
from figure_parts import caption_of, legend_of, lines, row_labels
from figure_tables import Study
from proof_tables import NO_RESTARTS

from ckptbench.matrix.registry import STRATEGIES
from ckptbench.report.answer import labels
from ckptbench.report.answer.setups import SEPARATOR, ordered
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.style import FAINT, paper


def test_an_interval_that_is_far_wider_than_the_estimates_does_not_stretch_the_axis() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1, 2)).tables()
    tables["strategies"].loc[0, "slowdown_s_hi"] = 16_000.0
    figure = FIGURES["strategies"].draw(tables)
    (slowdown,) = [axes for axes in figure.axes if axes.get_xlabel() == "Slowdown (s)"]
    largest_s = tables["strategies"]["slowdown_s"].max()
    assert 3 * largest_s < slowdown.get_xlim()[1] < 3.5 * largest_s


def test_the_measures_of_strategies_stand_side_by_side_with_their_intervals() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native", "async"))
    table = study.tables()["strategies"]
    figure = FIGURES["strategies"].draw(study.tables())
    names = ["Overhead (%)", "Stall (s)", "Slowdown (s)", "Durable (s)", "Memory (MB)"]
    assert [axes.get_xlabel() for axes in figure.axes] == names
    columns = {"overhead": 100, "stall_s": 1, "slowdown_s": 1, "durable_s": 1, "memory_bytes": 1e-6}
    for axes, (column, scale) in zip(figure.axes, columns.items(), strict=True):
        (points,) = lines(axes, column)
        assert sorted(points.get_xdata()) == pytest.approx(sorted(scale * table[column]))
        (bars,) = axes.collections
        ends = sorted(bar[:, 0].tolist() for bar in bars.get_segments())
        wanted = sorted((scale * table[[f"{column}_lo", f"{column}_hi"]]).to_numpy().tolist())
        assert [end for bar in ends for end in bar] == pytest.approx([e for bar in wanted for e in bar])  # fmt: skip
        assert axes.get_xlim()[0] < ends[0][0] < ends[-1][1] < axes.get_xlim()[1]


def test_an_estimate_without_an_interval_is_grey() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native", "async"))
    tables = study.tables()
    known = FIGURES["strategies"].draw(tables)
    tables["strategies"].loc[0, ["overhead_lo", "overhead_hi"]] = float("nan")
    figure = FIGURES["strategies"].draw(tables)
    colors = [[line.get_color() for line in lines(axes, "overhead")] for axes in figure.axes[:1]]
    assert colors == [[lines(known.axes[0], "overhead")[0].get_color(), FAINT]]
    grey = lines(figure.axes[0], "overhead")[-1]
    assert grey.get_xdata().tolist() == pytest.approx([100 * tables["strategies"].loc[0, "overhead"]])  # fmt: skip
    for drawn, words in ((figure, True), (known, False)):
        assert ("grey: no interval" in legend_of(drawn)) is words
        assert ("grey: no interval" in caption_of(drawn)) is words


def test_strategies_stand_in_the_order_of_what_they_cost_in_all() -> None:
    """In each panel, where ranks and interval are the same. What is not known comes last."""
    strategies = ("native", "async", "deepfreeze", "sharded")
    study = Study(frameworks=("pytorch",), models=("resnet50", "vgg16"), strategies=strategies)
    tables = study.tables()
    known = tables["strategies"]
    costs = {"native": 0.3, "async": 0.1, "deepfreeze": 0.2, "sharded": float("nan")}
    known["overhead"] = known["strategy"].map(costs)
    known.loc[(known["model"] == "vgg16") & (known["strategy"] == "async"), "overhead"] = 0.9
    resnet50, vgg16 = (
        [row.split(SEPARATOR) for row in row_labels(axes)]
        for axes in FIGURES["strategies"].draw(tables).axes
        if any(label.get_text() for label in axes.get_yticklabels())
    )
    for shown, in_order in (
        (resnet50, ("async", "deepfreeze", "native", "sharded")),
        (vgg16, ("deepfreeze", "native", "async", "sharded")),
    ):
        assert [row[0] for row in shown] == [*in_order, *in_order]
        assert [row[-1] for row in shown] == [*4 * ["1 rank"], *4 * ["2 ranks"]]


def test_memory_is_on_a_linear_axis_however_large() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,)).tables()
    tables["strategies"]["memory_bytes"] = 5e9
    axes = FIGURES["strategies"].draw(tables).axes[-1]
    assert (axes.get_xlabel(), axes.get_xscale()) == ("Memory (MB)", "linear")


def test_a_torn_strategy_is_named_in_its_row() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native", "async")).tables()
    torn = tables["strategies"]["strategy"] == "async"
    tables["strategies"].loc[torn, "consistent"] = False
    figure = FIGURES["strategies"].draw(tables)
    labels_of_rows = row_labels(figure.axes[0])
    (named,) = [label for label in labels_of_rows if label.endswith(" (torn)")]
    assert named.startswith("async")
    assert "torn: a version was not the state of its step" in caption_of(figure)
    assert "no version was compared" not in caption_of(figure)


def test_a_measure_of_strategies_that_nobody_knows_has_no_column() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,)).tables()
    memory = [name for name in tables["strategies"] if name.startswith("memory")]
    tables["strategies"][memory] = float("nan")
    tables["strategies"]["consistent"] = pd.array([None], dtype="boolean")
    figure = FIGURES["strategies"].draw(tables)
    assert "Memory (MB)" not in [axes.get_xlabel() for axes in figure.axes]
    assert "no version was compared with the state of its step" in caption_of(figure)


OPTIONS = {"levels": "shared", "partner": False, "threads": 1}
LONG = "async levels=memory+local_and_more+shared partner=True threads=2"


@pytest.fixture
def with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strategy `async` takes options."""
    entry = dataclasses.replace(STRATEGIES["async"], options=OPTIONS)
    monkeypatch.setitem(STRATEGIES, "async", entry)


@pytest.mark.usefixtures("with_options")
def test_a_strategy_is_shown_with_its_options() -> None:
    shown = {
        "native": "native",
        "async": "async",
        "async threads=2": "async threads=2",
        "async partner=True": "async partner=True",
        LONG: LONG,
        "async_no_such": "async no such",
        "unknown_engine": "unknown engine",
    }
    assert {text: labels.describe("strategy", text) for text in shown} == shown
    rows = [{"strategy": text, "strategy_name": text.partition(" ")[0]} for text in reversed(shown)]
    assert ordered(pd.DataFrame(rows), ["strategy"])["strategy"].tolist() == [
        "native", "async", LONG, "async partner=True", "async threads=2", "async_no_such", "unknown_engine",
    ]  # fmt: skip


def test_a_strategy_that_writes_in_one_format_is_shown_without_it() -> None:
    study = Study(
        frameworks=("pytorch",), ranks=(1,), strategies=("native", "sharded", "deepfreeze memory=1")
    )
    figure = FIGURES["overhead"].draw(study.tables())
    assert row_labels(figure.axes[0]) == ["native · torch.save", "sharded", "deepfreeze (memory 1)"]


@pytest.mark.usefixtures("with_options")
@pytest.mark.parametrize(
    "name", ["overhead", "strategies", "stall", "timeline", "sizes", "restore"]
)
def test_long_names_of_strategies_do_not_touch_and_leave_room_for_the_panels(name: str) -> None:
    study = Study(frameworks=("pytorch",), strategies=("native", "async", LONG))
    figure = FIGURES[name].draw(study.tables())
    with paper():
        figure.draw_without_rendering()
    shown = [label for label in figure.axes[0].get_yticklabels() if label.get_text()]
    boxes = sorted((label.get_window_extent() for label in shown), key=lambda box: box.y0)
    assert len({label.get_text() for label in shown}) > 2
    assert all(low.y1 < high.y0 for low, high in pairwise(boxes))
    assert all(box.x0 >= 0 for box in boxes)
    assert all(axes.get_window_extent().width > 0.5 * figure.dpi for axes in figure.axes)


@pytest.mark.usefixtures("with_options")
def test_the_legend_of_scaling_is_inside_the_figure_however_many_strategies_there_are() -> None:
    several = tuple(f"async_threads_{number}" for number in range(2, 6))
    every = ("native", "sharded", "async", *several, LONG)
    study = Study(strategies=every, restarts=NO_RESTARTS)
    figure = FIGURES["scaling"].draw(study.tables())
    with paper():
        figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    for axes in figure.axes:
        assert axes.get_window_extent().width > figure.dpi
        assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    assert len(figure.axes) == 1 + len(study.strategies) * len(study.frameworks)


def test_numbers_at_ticks_do_not_touch_on_the_narrow_axes_of_strategies() -> None:
    strategies = ("native", "deepfreeze", "dcp_async")
    study = Study(
        models=("resnet50", "vgg16"), strategies=strategies, intervals=("e1", "s50"), restarts=NO_RESTARTS
    )  # fmt: skip
    figure = FIGURES["strategies"].draw(study.tables())
    with paper():
        figure.draw_without_rendering()
    for axes in figure.axes:
        shown = [label for label in axes.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in shown]
        assert len(boxes) > 1
        assert all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))


def test_runs_that_were_continued_are_in_the_caption_of_strategies() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1, 2)).tables()
    said = "2 runs were continued after an interruption and are not timed"
    assert said not in caption_of(FIGURES["strategies"].draw(tables))
    tables["provenance"]["continued"] = 2
    own = tables["strategies"]["ranks"] == 2
    columns = [name for name in tables["strategies"] if name.endswith("_s") or "overhead" in name]
    tables["strategies"].loc[own, columns] = float("nan")
    figure = FIGURES["strategies"].draw(tables)
    assert said in caption_of(figure)
    assert row_labels(figure.axes[0]) == ["1 rank", "2 ranks"]
    tables["strategies"] = tables["strategies"][own].assign(memory_bytes=float("nan"))
    figure = FIGURES["strategies"].draw(tables)
    assert not figure.axes
    assert said.capitalize() in caption_of(figure)


@pytest.mark.parametrize("name", ["strategies", "stall", "overhead", "restore"])
def test_a_single_strategy_that_is_not_native_is_named_in_its_row(name: str) -> None:
    for strategy, label in (("sharded", "sharded"), ("native", "torch.save")):
        study = Study(frameworks=("pytorch",), ranks=(1,), strategies=(strategy,))
        tables = study.tables()
        tables["restore"] = tables["restore"][tables["restore"]["cache"] == "warm"]
        assert set(row_labels(FIGURES[name].draw(tables).axes[0])) == {label}
