"""What all figures are drawn with: titles, labels, looks and ticks that a reader can tell apart."""

from __future__ import annotations

import re
from itertools import pairwise

import matplotlib as mpl
import pandas as pd
import pytest
from figure_parts import caption_of, titles
from figure_tables import Study, together
from matplotlib.figure import Figure
from proof_tables import NO_RESTARTS

from ckptbench.matrix.networks.tensor_groups import GROUPS
from ckptbench.matrix.registry import FORMAT_LABELS, FRAMEWORKS, STRATEGIES
from ckptbench.report.answer import labels
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.axes import (
    durations,
    logarithmic,
    measured_ranks,
    percent,
    plain,
)
from ckptbench.report.figures.kit.panels import LABEL_LETTERS, folded
from ckptbench.report.figures.kit.style import LOOKS, look, paper


def test_an_optimizer_is_named_where_it_is_not_sgd_in_fp32() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(2,)).tables()
    usual = tables["overhead"]
    chosen = usual.assign(optimizer="adamw", precision="bf16")
    both = pd.concat([usual, chosen])
    drawn = {
        name: FIGURES["overhead"].draw({**tables, "overhead": table})
        for name, table in {"usual": usual, "chosen": chosen, "both": both}.items()
    }
    assert not re.search("SGD|fp32", drawn["usual"].caption)
    assert re.search("AdamW, bf16", drawn["chosen"].caption)
    titled = {title for title in titles(drawn["both"]) if title}
    assert titled == {"PyTorch, SGD, fp32", "PyTorch, AdamW, bf16"}


def test_a_title_says_no_more_than_tells_the_panels_apart_and_the_caption_the_rest() -> None:
    tables = together(
        Study(frameworks=("pytorch",), ranks=(2,), deterministic=(False, True)),
        Study(frameworks=("pytorch",), ranks=(2,), models=("vgg16",), batch_size=8, epochs=2),
    )
    figure = FIGURES["overhead"].draw(tables)
    assert titles(figure) == [
        "PyTorch, ResNet-50, default mode",
        "PyTorch, ResNet-50, deterministic mode",
        "PyTorch, VGG-16, default mode",
    ]
    text = caption_of(figure)
    assert "ResNet-50: batch 32 per rank, 5 epochs; VGG-16: batch 8 per rank, 2 epochs." in text


def test_panels_whose_titles_do_not_fit_side_by_side_stand_below_each_other() -> None:
    study = Study(
        frameworks=("horovod_tensorflow", "pytorch"), ranks=(2,), formats_each=3,
        models=("resnet50", "vgg16"), deterministic=(False, True), intervals=("e1", "s50"), restarts=NO_RESTARTS,
    )  # fmt: skip
    figure = FIGURES["overhead"].draw(study.tables())
    assert {axes.get_subplotspec().get_gridspec().ncols for axes in figure.axes} == {1}


def test_an_unknown_framework_has_a_look_of_its_own_and_its_name() -> None:
    assert look("no_such_framework") == look("no_such_framework")
    assert look("no_such_framework") not in LOOKS.values()
    tables = Study(frameworks=("no_such_framework",)).tables()
    assert titles(FIGURES["overhead"].draw(tables)) == ["no such framework"]


def test_every_framework_has_a_name_a_colour_and_a_marker_of_its_own() -> None:
    assert len({look(framework).color for framework in FRAMEWORKS}) == len(FRAMEWORKS)
    assert len({look(framework).marker for framework in FRAMEWORKS}) == len(FRAMEWORKS)
    assert len({labels.name(framework) for framework in FRAMEWORKS}) == len(FRAMEWORKS)


def test_every_format_has_a_label_and_a_place_after_the_default_of_its_framework() -> None:
    entries = (*FRAMEWORKS.values(), *STRATEGIES.values())
    assert {name for entry in entries for name in entry.formats or ()} == set(FORMAT_LABELS)
    for entry in FRAMEWORKS.values():
        assert min(entry.formats, key=list(FORMAT_LABELS).index) == entry.formats[0]


def test_every_group_of_tensors_has_a_label() -> None:
    assert set(labels.GROUP_NAMES) == set(GROUPS)


def test_intervals_and_numbers_read_as_a_person_writes_them() -> None:
    assert [labels.interval(text) for text in ("e1", "e5", "s1", "s50", "never")] == [
        "every epoch",
        "every 5 epochs",
        "every step",
        "every 50 steps",
        "never",
    ]
    assert [plain(number) for number in (0.05, 2.0, 20000.0, -2.0, -1000.0)] == [
        "0.05",
        "2",
        "20,000",
        "-2",
        "-1,000",
    ]


def test_ticks_are_numbers_that_a_reader_would_choose() -> None:
    axes = Figure().add_subplot()
    logarithmic(axes.yaxis, [0.6, 16])
    assert list(axes.get_yticks()) == pytest.approx([1, 2, 5, 10])
    measured_ranks(axes.xaxis, [1, 2, 4, 8, 16, 32, 64, 128])
    named = [label.get_text() for label in axes.get_xticklabels()]
    assert named == ["1", "4", "16", "64"]
    wide = Figure().add_subplot()
    percent(wide.xaxis, [-1.0, 5.0, 400.0])
    assert {0, 10, 100} <= set(wide.get_xticks())


@pytest.mark.parametrize(
    ("ends", "labels"),
    [
        ((0.15, 1.4), ["0.2", "0.5", "1"]),
        ((20, 9000), ["100", "1,000", "10,000"]),
        ((1e-4, 0.3), ["0.0001", "0.001", "0.01", "0.1"]),
        ((1, 6e7), ["10", "1,000", "100,000", "10,000,000"]),
    ],
)
def test_a_logarithmic_axis_has_as_many_ticks_as_have_room(
    ends: tuple[float, float], labels: list[str]
) -> None:
    with paper():
        axes = Figure((2.5, 1.0)).add_subplot()
        logarithmic(axes.xaxis, ends)
        shown = [label.get_text() for label in axes.get_xticklabels()]
    assert [label for label in shown if label in labels] == labels
    assert 2 <= len(shown) <= 6


@pytest.mark.parametrize(
    ("minutes", "labels"),
    [
        ((2, 45), ["2 min", "5 min", "10 min", "30 min"]),
        ((0.7, 3000), ["1 min", "10 min", "1 h", "6 h", "1 d"]),
        ((20, 60_000), ["1 h", "6 h", "1 d", "10 d"]),
        ((2e-4, 0.3), ["10 ms", "100 ms", "1 s", "10 s"]),
    ],
)
def test_an_axis_of_times_has_ticks_that_people_call_a_time(
    minutes: tuple[float, float], labels: list[str]
) -> None:
    with paper():
        axes = Figure((3.5, 1.0)).add_subplot()
        durations(axes.xaxis, minutes)
        assert [label.get_text() for label in axes.get_xticklabels()] == labels


@pytest.mark.parametrize("minutes", [(2, 45), (1, 1e6), (1e-4, 5), (0.1, 3e4)])
def test_names_of_times_do_not_touch_on_a_narrow_axis(minutes: tuple[float, float]) -> None:
    with paper():
        axes = Figure((1.8, 1.0)).add_subplot()
        durations(axes.xaxis, minutes)
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) > 1
    assert all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("values", [[], [0.0], [1.0], [float("inf"), 2.0], [1e-12, 1e12]])
def test_an_axis_of_odd_values_has_ends_and_ticks(values: list[float]) -> None:
    axes = Figure().add_subplot()
    for scale in (logarithmic, durations):
        scale(axes.xaxis, values)
        assert 0 < axes.get_xlim()[0] < axes.get_xlim()[1]
        assert len(axes.get_xticks()) > 1


@pytest.mark.parametrize("scale", [1, 7, 60, 300, 20_000])
def test_numbers_at_ticks_do_not_touch_however_wide_the_stalls_are_apart(scale: int) -> None:
    tables = Study(ranks=(2,)).tables()
    stretched = tables["stall"]["framework"].eq("chainer")
    tables["stall"].loc[stretched, "stall_s"] /= scale
    figure = FIGURES["stall"].draw(tables)
    with paper():
        figure.draw_without_rendering()
    for axes in figure.axes:
        shown = [label for label in axes.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in shown]
        assert len(boxes) > 1
        assert all(left.x1 + 3 < right.x0 for left, right in pairwise(boxes))


def test_nothing_is_smaller_than_seven_points_and_the_users_settings_stay() -> None:
    before = dict(mpl.rcParams)
    figure = FIGURES["timeline"].draw(Study(ranks=(1,)).tables())
    assert dict(mpl.rcParams) == before
    assert min(text.get_fontsize() for text in figure.findobj(mpl.text.Text)) == 7
    assert figure.get_figwidth() == 7.16


@pytest.mark.parametrize("name", ["overhead", "stall"])
def test_titles_stay_inside_their_column_and_the_legend_off_the_panels(name: str) -> None:
    study = Study(frameworks=("horovod_tensorflow",), ranks=(2,), models=("resnet50", "vgg16"))
    figure = FIGURES[name].draw(study.tables())
    with paper():
        figure.draw_without_rendering()
    boxes = [title.get_window_extent() for axes in figure.axes if (title := axes._left_title)]
    others = [*boxes, *(axes.get_tightbbox() for axes in figure.axes)]
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(box) for box in others)
    drawn = [box for box in boxes if box.width > 1]
    assert drawn[0].x1 < drawn[1].x0


@pytest.mark.parametrize("width_in", [0.6, 0.9, 1.5, 3.0])
def test_zero_has_its_number_on_an_axis_that_holds_values_below_it(width_in: float) -> None:
    with paper():
        figure = Figure((width_in, 1.0))
        axes = figure.add_axes((0, 0.3, 1, 0.6))
        percent(axes.xaxis, [-1900.0, 2600.0])
        figure.draw_without_rendering()
        shown = [label.get_text() for label in axes.get_xticklabels() if label.get_text()]
    assert "0" in shown


def test_a_label_that_needs_several_lines_is_cut_between_its_parts() -> None:
    long = "deepfreeze memory=1 node=2 replicas=0 shared=4"
    for label in (f"{long} · 1 rank", f"{long} · 1 rank · every 50 steps", "native · rank 0"):
        lines = folded(label).split("\n")
        assert not any(line.startswith("·") or line.endswith("·") for line in lines)
        assert all(len(line) <= LABEL_LETTERS for line in lines)
        assert any("1 rank" in line or "rank 0" in line for line in lines)
    assert folded("native · rank 0") == "native · rank 0"
