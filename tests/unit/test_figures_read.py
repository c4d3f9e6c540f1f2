"""What a person who looks at a figure can read from it: names in words, short legends, and the number to quote."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import pandas as pd
import pytest
from decision_tables import decided
from figure_parts import caption_of, lines, row_labels
from figure_tables import Study
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.parts import Part
from ckptbench.report.figures.kit.style import paper
from ckptbench.report.figures.kit.words import worded
from ckptbench.report.figures.recovery import PARTS
from ckptbench.report.figures.restore import PARTS as RESTORE_PARTS

RICH = Study(
    frameworks=("pytorch",),
    ranks=(1, 2, 4),
    strategies=("native", "deepfreeze memory=1 shared=6"),
    struck=("exponential mean_s=60 most=5", "listed name=seeded_1"),
    recoveries=("restart", "ulfm batch=shrunk replace=True"),
)
MEASURED = [name for name in FIGURES if name not in ("advice", "scale")]
MOST = 6


def legends(figure: Figure) -> list[list[str]]:
    return [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]


@pytest.mark.parametrize("name", MEASURED)
def test_options_are_in_words_and_no_code(name: str) -> None:
    figure = FIGURES[name].draw(RICH.tables())
    with paper():
        figure.draw_without_rendering()
        texts = [text.get_text() for text in figure.findobj(Text)]
    assert not [text for text in texts if "=" in text or "_" in text]
    assert "=" not in figure.caption


def test_words_of_options_say_a_unit_and_what_is_on() -> None:
    (axes, *_) = FIGURES["recovery"].draw(RICH.tables()).axes
    labels = " ".join(" ".join(row_labels(axes)).split())
    assert "exponential (mean 60 s, at most 5)" in labels
    assert "listed (seeded 1)" in labels
    specs = [PluginSpec("ulfm", (("batch", "shrunk"), ("replace", on))) for on in (True, False)]
    rows = pd.DataFrame(
        [*(spec.columns("recovery") for spec in specs), PluginSpec("my=own_1").columns("recovery")]
    )
    named = worded({"goodput": rows})["goodput"]["recovery"]
    assert list(named) == ["ulfm (batch shrunk, replace)", "ulfm (batch shrunk, no replace)", "my=own_1"]  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_a_legend_has_six_entries_at_most(name: str) -> None:
    figure = FIGURES[name].draw(RICH.tables())
    assert all(len(own) <= MOST for own in legends(figure))


def test_a_part_that_is_too_thin_to_see_is_not_in_the_legend() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(2,)).tables()
    stall = tables["stall"]
    thin = ["sync_s", "checksum_s", "commit_s"]
    stall["write_s"] += stall[thin].sum(axis=1) * 0.999
    stall[thin] *= 0.001
    _, parts = legends(FIGURES["stall"].draw(tables))
    assert "write" in parts
    assert not {"sync", "checksum, commit"} & {*parts}


def test_a_study_of_first_checkpoints_names_the_marks_that_it_shows() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), first_checkpoints=9)
    tables = study.tables()
    kinds, _ = legends(FIGURES["stall"].draw({**tables, "stall": tables["stall"].query("not warmup")}))  # fmt: skip
    assert kinds == ["stall, before the steady state", "durable, before the steady state", "mean"]


def test_the_overhead_to_quote_stands_beside_its_row() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1, 2)).tables()
    table = tables["overhead"]
    table["overhead_from"] = ["in_run", "paired"]
    table["overhead"] = [0.0312, 1.234]
    figure = FIGURES["overhead"].draw(tables)
    (axes,) = figure.axes
    numbers = [text for text in axes.texts if text.get_gid() == "quoted"]
    assert [text.get_text() for text in numbers] == ["3.1 %", "123 %"]
    with paper():
        figure.draw_without_rendering()
        assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in numbers)
    sizes = {line.get_color(): line.get_markersize() for line in axes.lines if line.get_gid() in ("paired", "in_run")}  # fmt: skip
    assert len(sizes) == len(set(sizes.values())) == 2
    grey = {line.get_color() for line in lines(axes, "paired") if line.get_ydata()[0] < 0.5}
    colored = {line.get_color() for line in lines(axes, "in_run") if line.get_ydata()[0] < 0.5}
    assert grey.isdisjoint(colored)
    assert "the number to quote" in caption_of(figure)


def test_an_axis_that_is_not_linear_says_so() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1, 2)).tables()
    (axes,) = FIGURES["overhead"].draw(tables).axes
    assert axes.get_xlabel() == "Overhead (%)"
    tables["overhead"].loc[0, "in_run_hi"] = 4.0
    (axes,) = FIGURES["overhead"].draw(tables).axes
    assert axes.get_xlabel() == "Overhead (%)\nlogarithmic beyond 10 %"


@pytest.mark.parametrize("name", ["overhead", "stall", "strategies"])
def test_setups_that_differ_in_their_recovery_alone_have_a_row_each(name: str) -> None:
    tables = Study(frameworks=("pytorch",), ranks=(2,)).tables()
    for table in (name, "checkpoint_cost"):
        tables[table].loc[:, ["recovery", "recovery_name"]] = "ulfm"
    both = Study(frameworks=("pytorch",), ranks=(2,)).tables()
    for table in (name, "checkpoint_cost"):
        both[table] = pd.concat([both[table], tables[table]], ignore_index=True)
    axes = FIGURES[name].draw(both).axes[0]
    assert [label.split(" · ")[-1] for label in row_labels(axes)] == ["restart", "ulfm"]


def test_sizes_are_called_so_and_grow_by_whole_percents() -> None:
    tables = Study(frameworks=("chainer",), ranks=(1,)).tables()
    tables["sizes"]["ratio"] = 2.53
    (axes,) = FIGURES["sizes"].draw(tables).axes
    assert FIGURES["sizes"].title == axes.get_xlabel() == "Size of a checkpoint"
    assert axes.texts[-1].get_text().endswith(", +153 %")


def test_the_last_diamond_of_a_timeline_is_inside_and_training_is_said_to_go_on() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1,), strategies=("native", "async")).tables()
    table = tables["timeline"]
    last_s = table.loc[table["kind"] == "commit", "end_s"].max()
    (axes,) = FIGURES["timeline"].draw({**tables, "timeline": table[table["end_s"] <= last_s]}).axes
    (durable,) = lines(axes, "durable")
    assert durable.get_xdata().max() == last_s < axes.get_xlim()[1]
    assert {text.get_text() for text in axes.texts if text.get_gid() == "goes on"} == {"…"}


@pytest.mark.parametrize("parts", [PARTS, RESTORE_PARTS], ids=["recovery", "restore"])
def test_neighbours_differ_in_grey_or_in_their_pattern(parts: dict[str, Part]) -> None:
    looks = [(luminance(part.color or ""), part.hatch) for part in parts.values()]
    for (one, hatch), (other, other_hatch) in itertools.pairwise(looks):
        assert abs(one - other) > 0.2 or hatch != other_hatch
    assert len({(part.color, part.hatch) for part in parts.values()}) == len(parts)
    for one, other in itertools.combinations([part.color or "" for part in parts.values()], 2):
        assert max(abs(a - b) for a, b in zip(to_rgb(one), to_rgb(other), strict=True)) > 0.2


def luminance(color: str) -> float:
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_panels_of_goodput_have_titles_of_their_own_and_lines_only_where_drawn() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), struck=("listed name=twice",), recoveries=("restart", "ulfm"))  # fmt: skip
    figure = FIGURES["goodput"].draw(study.tables())
    shown = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(set(shown)) == len(shown) == 2
    (legend,) = figure.legends
    assert {line.get_linestyle() for line in legend.get_lines()} == {"None"}
    rates = study.tables()["goodput"]["failures_per_hour"]
    assert 0 < figure.axes[0].get_xlim()[0] < rates.min()  # no half of the panel is empty


def test_curves_of_scale_have_intervals_that_do_not_cover_one_another() -> None:
    (axes,) = FIGURES["scale"].draw(decided("given")).axes
    ends = [each for each in axes.collections if each.get_gid() == "interval"]
    places = [segment[0][0] for each in ends for segment in each.get_segments()]
    assert len(places) == len(set(places)) > 2
    markers = [line.get_marker() for line in lines(axes, "measured")]
    assert len(markers) == len(set(markers)) > 1
    assert not any(isinstance(each, mpl.collections.FillBetweenPolyCollection) for each in axes.collections)  # fmt: skip


def test_a_single_row_with_a_wide_interval_has_room_for_all_of_its_words() -> None:
    """As of two repeats on a busy machine: the figure had collapsed, its legend over the panel."""
    tables = Study(frameworks=("pytorch",), ranks=(1,)).tables()
    wide = {"paired": 4.6, "paired_lo": -0.99, "paired_hi": 27_328.0, "in_run_lo": -6.8, "in_run_hi": 6.8}  # fmt: skip
    tables["overhead"] = tables["overhead"].head(1).assign(**wide)
    with paper(tables):
        figure = FIGURES["overhead"].draw(tables)
        figure.draw_without_rendering()
    (axes,), (shown,) = figure.axes, figure.legends
    ticks = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(sorted(ticks, key=lambda box: box.x0)))  # fmt: skip
    (title,) = (text for text in axes.findobj(Text) if text.get_text() == "PyTorch")
    assert title.get_window_extent().y1 <= shown.get_window_extent().y0
    assert axes.xaxis.label.get_window_extent().y0 > 0
