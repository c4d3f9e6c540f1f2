"""Overhead, stall and sizes: what their panels show, and what stands in the caption."""

from __future__ import annotations

import pandas as pd
import pytest
from figure_parts import SMALL, caption_of, lines, row_labels, titles
from figure_tables import Study

from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.style import FAINT, look


def test_the_overhead_to_quote_has_the_colour_of_its_framework_and_the_other_is_grey() -> None:
    figure = FIGURES["overhead"].draw(SMALL)
    for axes, framework in zip(figure.axes, Study().frameworks, strict=True):
        (paired,), (in_run,) = lines(axes, "paired"), lines(axes, "in_run")
        assert (paired.get_color(), in_run.get_color()) == (look(framework).color, FAINT)
        assert {paired.get_marker(), in_run.get_marker()} == {look(framework).marker}
        assert (paired.get_markerfacecolor(), in_run.get_markerfacecolor()) == (
            look(framework).color,
            "white",
        )


@pytest.mark.parametrize("name", ["overhead", "strategies"])
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_the_legend_has_the_marker_of_the_points(name: str, framework: str) -> None:
    tables = Study(frameworks=(framework,), strategies=("native", "async")).tables()
    (legend,) = FIGURES[name].draw(tables).legends
    assert {line.get_marker() for line in legend.get_lines()} - {"|"} == {look(framework).marker}


def test_overhead_is_in_percent_and_a_row_whose_estimates_disagree_is_shaded() -> None:
    table = SMALL["overhead"].query("framework == 'pytorch'").reset_index(drop=True)
    table["agree"] = pd.array([False, None], dtype="boolean")
    (axes,) = FIGURES["overhead"].draw({**SMALL, "overhead": table}).axes
    (paired,) = lines(axes, "paired")
    assert list(paired.get_xdata()) == pytest.approx(list(100 * table["paired"]))
    assert row_labels(axes) == ["1 rank", "2 ranks"]
    shaded = [patch for patch in axes.patches if patch.get_gid() == "disagree"]
    assert [patch.get_y() for patch in shaded] == [-0.5]


def test_the_overhead_in_the_steady_state_is_a_tick_where_it_is_known() -> None:
    figure = FIGURES["overhead"].draw(SMALL)
    drawn = [
        x for axes in figure.axes for (line,) in [lines(axes, "steady")] for x in line.get_xdata()
    ]
    assert sorted(drawn) == pytest.approx(sorted(100 * SMALL["overhead"]["in_run_steady"]))
    assert "Ticks: the estimate" in caption_of(figure)


def test_an_overhead_without_an_interval_is_grey() -> None:
    table = SMALL["overhead"].copy()
    ends = [f"{name}{end}" for name in ("paired", "in_run", "overhead") for end in ("_lo", "_hi")]
    table[[*ends, "paired"]] = float("nan")
    table["overhead_from"] = "in_run"
    for axes in FIGURES["overhead"].draw({**SMALL, "overhead": table}).axes:
        (in_run,) = lines(axes, "in_run")
        numbers = [text for text in axes.texts if text.get_gid() == "quoted"]
        assert numbers
        assert {in_run.get_color(), *(text.get_color() for text in numbers)} == {FAINT}


def test_what_does_not_vary_is_said_once_in_the_caption() -> None:
    figure = FIGURES["overhead"].draw(Study(ranks=(2,), intervals=("e1", "s50")).tables())
    assert "2 ranks" in caption_of(figure)
    assert row_labels(figure.axes[0]) == ["npz · every epoch", "npz · every 50 steps"]


@pytest.mark.parametrize("first_checkpoints", [2, 9], ids=["steady", "all first"])
def test_every_checkpoint_is_a_point_beside_the_mean_of_its_setup(
    first_checkpoints: int,
) -> None:
    study = Study(
        frameworks=("pytorch",),
        ranks=(2,),
        repeats=2,
        epochs=4,
        first_checkpoints=first_checkpoints,
    )
    stall = study.tables()["stall"]
    figure = FIGURES["stall"].draw(study.tables())
    points, shares = figure.axes
    steady, first, warmup = (line.get_xdata() for line in lines(points, "stall_s"))
    assert sorted(steady) == sorted(stall.query("steady")["stall_s"])
    assert sorted(first) == sorted(stall.query("not steady and not warmup")["stall_s"])
    assert sorted(warmup) == sorted(stall.query("warmup")["stall_s"])
    durable = [second for line in lines(points, "durable_s") for second in line.get_xdata()]
    assert sorted(durable) == sorted(stall["durable_s"])
    (costs,) = study.tables()["checkpoint_cost"][["stall_s", "durable_s"]].to_numpy()
    means = [each.get_segments()[0][0][0] for each in points.collections]
    assert means == list(costs)
    assert sum(patch.get_width() for patch in shares.patches) == pytest.approx(100)


def test_parts_that_are_behind_training_are_not_drawn_as_parts_of_the_stall() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native", "async"))
    figure = FIGURES["stall"].draw(study.tables())
    _, shares = figure.axes
    row = row_labels(figure.axes[0]).index("async")
    width = {
        patch.get_gid(): patch.get_width()
        for patch in shares.patches
        if round(patch.get_y() + patch.get_height() / 2) == row
    }
    assert width["write_s"] == width["sync_s"] == width["commit_s"] == 0
    assert width["capture_s"] > 0
    assert sum(width.values()) == pytest.approx(100)
    kinds, parts = ([text.get_text() for text in own.get_texts()] for own in figure.legends)
    assert kinds == ["stall", "durable", "before the steady state", "during the warm-up", "mean"]
    assert parts == ["capture", "write", "sync", "checksum, commit", "training waits"]
    native = FIGURES["stall"].draw(Study(strategies=("native",)).tables())
    assert "capture" not in [text.get_text() for text in native.legends[1].get_texts()]


def test_a_size_is_drawn_above_the_parts_that_it_must_have() -> None:
    study = Study(frameworks=("chainer",), ranks=(1, 2), formats_each=2)
    (axes,) = FIGURES["sizes"].draw(study.tables()).axes
    assert [text.get_text() for text in axes.texts] == ["189 MB", "189 MB, +0.1 %", "153 MB, −19 %"]  # noqa: RUF001  # fmt: skip
    (model,) = (patch for patch in axes.patches if patch.get_gid() == "state_model_bytes")
    assert model.get_width() == pytest.approx(94.33e6, rel=1e-3)
    assert row_labels(axes) == ["must have", "npz", "npz, deflate"]


def test_all_formats_of_a_model_stand_below_the_bytes_that_it_must_have() -> None:
    figure = FIGURES["sizes"].draw(Study(ranks=(2,), models=("resnet50", "vgg16")).tables())
    assert titles(figure) == ["ResNet-50", "VGG-16"]
    formats = ["Chainer · npz", "PyTorch · torch.save", "TensorFlow · HDF5"]
    assert row_labels(figure.axes[0]) == ["must have", *formats]


def test_sizes_that_depend_on_the_ranks_have_a_row_each() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1, 2))
    table = study.tables()["sizes"]
    table["bytes"] *= table["ranks"]
    (axes,) = FIGURES["sizes"].draw({**study.tables(), "sizes": table}).axes
    assert row_labels(axes) == ["must have", "1 rank", "2 ranks"]
