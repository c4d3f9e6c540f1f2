"""Each figure says what its tables hold, where it was measured, and is drawn the same every time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from figure_tables import Study, empty_tables, together
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ckptbench.analysis.tables.registry import DERIVED
from ckptbench.analysis.tables.store import write_tables
from ckptbench.errors import RunFolderError
from ckptbench.figures import FIGURES
from ckptbench.figures.files import write_figure
from ckptbench.figures.kit import labels
from ckptbench.figures.kit.style import LOOKS, look, paper
from ckptbench.figures.kit.ticks import logarithmic, measured_ranks, percent, plain
from ckptbench.matrix.catalogue import FORMAT_LABELS, FRAMEWORKS
from ckptbench.networks.tensor_groups import GROUPS

REPOSITORY = Path(__file__).parents[2]
SMALL = Study().tables()


def caption_of(figure: Figure) -> str:
    (text,) = figure.findobj(lambda artist: artist.get_gid() == "caption")
    return " ".join(text.get_text().split())


def titles(figure: Figure) -> list[str]:
    return [title for axes in figure.axes if (title := axes.get_title(loc="left"))]


def lines(axes: Axes, gid: str) -> list[mpl.lines.Line2D]:
    return [line for line in axes.lines if line.get_gid() == gid]


def row_labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_where_when_and_how_often_it_was_measured(name: str) -> None:
    text = caption_of(FIGURES[name].draw(SMALL))
    assert "Measured on CPU (AMD EPYC 7B13, 2 cores, ext4), 2026-01-02, 3 repeats." in text
    assert "GPU" not in text
    assert "ResNet-50, digits" in text


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_needs_no_table_but_those_it_names(name: str) -> None:
    FIGURES[name].draw({table: SMALL[table] for table in FIGURES[name].tables})


@pytest.mark.parametrize("name", FIGURES)
def test_a_study_without_runs_is_said_in_words(name: str) -> None:
    figure = FIGURES[name].draw(empty_tables())
    assert not figure.axes
    (text,) = figure.findobj(lambda artist: artist.get_gid() == "nothing")
    assert "to show" in text.get_text().replace("\n", " ")


@pytest.mark.parametrize("name", ["overhead", "stall", "scaling", "training"])
def test_cpu_and_gpu_never_share_a_panel(name: str) -> None:
    study = Study(frameworks=("pytorch",), hardware=("cpu", "gpu"))
    figure = FIGURES[name].draw(study.tables())
    assert all(("CPU" in title) != ("GPU" in title) for title in titles(figure))
    assert "Measured on CPU (" in caption_of(figure)
    assert "GPU Tesla V100" in caption_of(figure)


def test_a_figure_of_cpu_rows_does_not_mention_the_gpu_of_other_runs() -> None:
    both = Study(hardware=("cpu", "gpu")).tables()
    figure = FIGURES["overhead"].draw({**both, "overhead": SMALL["overhead"]})
    assert "GPU" not in caption_of(figure)


def test_rows_of_an_unknown_machine_are_refused() -> None:
    tables = {**SMALL, "provenance": Study(hardware=("gpu",)).tables()["provenance"]}
    with pytest.raises(RunFolderError, match="no machine for rows measured on cpu"):
        FIGURES["overhead"].draw(tables)


@pytest.mark.parametrize("name", ["overhead", "stall", "sizes"])
def test_models_are_apart_and_frameworks_in_their_order(name: str) -> None:
    figure = FIGURES[name].draw(Study(ranks=(2,), models=("resnet50", "vgg16")).tables())
    frameworks = ("Chainer", "PyTorch", "TensorFlow")
    assert titles(figure) == [f"{f}, {m}" for f in frameworks for m in ("ResNet-50", "VGG-16")]


def test_a_title_says_no_more_than_tells_the_panels_apart_and_the_caption_the_rest() -> None:
    tables = together(
        Study(frameworks=("pytorch",), ranks=(2,), deterministic=(False, True)),
        Study(frameworks=("pytorch",), ranks=(2,), models=("vgg16",), batch_size=8, epochs=2),
    )
    figure = FIGURES["training"].draw(tables)
    assert titles(figure) == [
        "ResNet-50, default mode",
        "ResNet-50, deterministic mode",
        "VGG-16, default mode",
    ]
    text = caption_of(figure)
    assert "ResNet-50: batch 32 per rank, 5 epochs; VGG-16: batch 8 per rank, 2 epochs." in text


def test_panels_whose_titles_do_not_fit_side_by_side_stand_below_each_other() -> None:
    study = Study(
        frameworks=("horovod_tensorflow", "pytorch"), ranks=(2,), formats_each=3,
        models=("resnet50", "vgg16"), deterministic=(False, True), intervals=("e1", "s50"),
    )  # fmt: skip
    figure = FIGURES["overhead"].draw(study.tables())
    assert {axes.get_subplotspec().get_gridspec().ncols for axes in figure.axes} == {1}


def test_both_estimates_of_overhead_have_the_colour_and_marker_of_their_framework() -> None:
    figure = FIGURES["overhead"].draw(SMALL)
    for axes, framework in zip(figure.axes, Study().frameworks, strict=True):
        (paired,), (in_run,) = lines(axes, "paired"), lines(axes, "in_run")
        assert {paired.get_color(), in_run.get_color()} == {look(framework).color}
        assert {paired.get_marker(), in_run.get_marker()} == {look(framework).marker}
        assert (paired.get_markerfacecolor(), in_run.get_markerfacecolor()) == (
            look(framework).color,
            "white",
        )


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
    assert "ticks are the estimate" in caption_of(figure).replace("\n", " ")
    unknown = SMALL["overhead"].assign(in_run_steady=float("nan"))
    assert "ticks are" not in caption_of(FIGURES["overhead"].draw({**SMALL, "overhead": unknown}))


def test_overheads_without_intervals_are_points_alone() -> None:
    table = SMALL["overhead"].copy()
    table[["paired", "paired_lo", "paired_hi", "in_run_lo", "in_run_hi"]] = float("nan")
    FIGURES["overhead"].draw({**SMALL, "overhead": table})


def test_what_does_not_vary_is_said_once_in_the_caption() -> None:
    figure = FIGURES["overhead"].draw(Study(ranks=(2,), intervals=("e1", "s50")).tables())
    assert "2 ranks" in caption_of(figure)
    assert row_labels(figure.axes[0]) == ["npz · every epoch", "npz · every 50 steps"]


@pytest.mark.parametrize(
    ("first_checkpoints", "counted"),
    [(2, "steady"), (9, "not warmup")],
    ids=["steady", "all first"],
)
def test_every_checkpoint_is_a_point_and_the_steady_state_counts_if_there_is_one(
    first_checkpoints: int, counted: str
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
    steady, first, warmup = (line.get_xdata() for line in lines(points, "checkpoints"))
    assert sorted(steady) == sorted(stall.query("steady")["stall_s"])
    assert sorted(first) == sorted(stall.query("not steady and not warmup")["stall_s"])
    assert sorted(warmup) == sorted(stall.query("warmup")["stall_s"])
    assert "crosses are the first checkpoints of a run" in caption_of(figure).replace("\n", " ")
    (median,) = (c for c in points.collections if c.get_gid() == "median")
    assert median.get_segments()[0][0][0] == stall.query(counted)["stall_s"].median()
    assert sum(patch.get_width() for patch in shares.patches) == pytest.approx(100)


def test_a_size_is_drawn_above_the_parts_that_it_must_have() -> None:
    study = Study(frameworks=("chainer",), ranks=(1, 2), formats_each=2)
    (axes,) = FIGURES["sizes"].draw(study.tables()).axes
    assert [text.get_text() for text in axes.texts] == ["1.00×", "0.81×"]  # noqa: RUF001
    model = [patch for patch in axes.patches if patch.get_gid() == "state_model_bytes"]
    assert [patch.get_width() for patch in model] == pytest.approx([94.33, 94.33])
    assert row_labels(axes) == ["npz", "npz, deflate"]


def test_sizes_that_depend_on_the_ranks_have_a_row_each() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1, 2))
    table = study.tables()["sizes"]
    table["bytes"] *= table["ranks"]
    (axes,) = FIGURES["sizes"].draw({**study.tables(), "sizes": table}).axes
    assert row_labels(axes) == ["1 rank", "2 ranks"]


def test_scaling_shows_measured_ranks_only_and_the_ideal_from_the_fewest() -> None:
    figure = FIGURES["scaling"].draw(Study(ranks=(2, 4, 6)).tables())
    throughput, *costs = figure.axes
    assert list(throughput.get_xticks()) == [2, 4, 6]
    assert throughput.get_xlim()[1] < 8
    measured, ideal = lines(throughput, "measured")[0], lines(throughput, "ideal")[0]
    assert ideal.get_ydata()[0] == measured.get_ydata()[0]
    assert ideal.get_ydata()[-1] == pytest.approx(3 * measured.get_ydata()[0])
    assert [len(lines(axes, "stall_s")) for axes in costs] == [1, 1, 1]
    assert [axes.get_title(loc="left") for axes in costs] == ["Chainer", "PyTorch", "TensorFlow"]


def test_where_ranks_share_the_cores_of_a_machine_scaling_shows_what_these_allow() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1, 2, 4), shared_cores=True)
    figure = FIGURES["scaling"].draw(study.tables())
    throughput = figure.axes[0]
    (measured,), (allowed,) = lines(throughput, "measured"), lines(throughput, "allowed")
    assert list(allowed.get_xdata()) == [1, 2, 4]
    assert list(allowed.get_ydata()) == pytest.approx([measured.get_ydata()[0]] * 3)
    assert [text.get_text() for text in throughput.get_legend().get_texts()] == [
        "PyTorch",
        "ideal",
        "cores allow",
    ]
    assert "Ranks share the cores of a machine" in caption_of(figure)


def test_where_each_rank_has_cores_of_its_own_scaling_shows_the_ideal_alone() -> None:
    for hardware in ("cpu", "gpu"):
        figure = FIGURES["scaling"].draw(Study(hardware=(hardware,)).tables())
        assert not lines(figure.axes[0], "allowed")
        assert "share the cores" not in caption_of(figure)


def test_the_axes_of_scaling_hold_the_ideal_and_both_ends_of_every_interval() -> None:
    tables = Study(frameworks=("chainer",), ranks=(1, 2)).tables()
    rates = ["images_per_s_lo", "images_per_s", "images_per_s_hi"]
    tables["scaling"][rates] = [[59.0, 60.0, 61.0], [95.0, 96.0, 97.0]]
    tables["checkpoint_cost"]["stall_s_hi"] = 3 * tables["checkpoint_cost"]["stall_s"]
    for axes in FIGURES["scaling"].draw(tables).axes:
        ends = [y for bars in axes.collections for bar in bars.get_segments() for y in bar[:, 1]]
        drawn = [*ends, *(value for line in axes.lines for value in line.get_ydata())]
        assert axes.get_ylim()[0] < min(drawn)
        assert axes.get_ylim()[1] > max(drawn)


def test_scaling_is_shown_without_a_run_with_checkpoints() -> None:
    figure = FIGURES["scaling"].draw({**SMALL, "checkpoint_cost": SMALL["checkpoint_cost"][:0]})
    assert titles(figure) == ["Throughput"]


def test_one_number_of_ranks_is_no_scaling() -> None:
    figure = FIGURES["scaling"].draw(Study(ranks=(2,)).tables())
    assert not figure.axes
    assert "2 ranks" in caption_of(figure)


def test_baselines_and_runs_with_checkpoints_and_resumed_ones_are_curves_of_their_own() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), formats_each=2)
    table = study.tables()["training"]
    table.loc[table["repeat"] == 2, "attempts"] = 2
    figure = FIGURES["training"].draw({**study.tables(), "training": table})
    loss, accuracy = figure.axes
    assert [line.get_gid() for line in loss.lines] == ["baseline", "with checkpoints", "resumed"]
    assert list(loss.lines[0].get_xdata()) == [1, 2, 3, 4, 5]
    assert max(accuracy.lines[0].get_ydata()) > 1
    assert "means over repeats and formats" in caption_of(figure)


def test_training_without_evaluation_says_so() -> None:
    table = SMALL["training"].assign(test_accuracy=float("nan"))
    figure = FIGURES["training"].draw({**SMALL, "training": table})
    assert [text.get_text() for text in figure.axes[1].texts] == ["not evaluated"]


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
    assert {name for entry in FRAMEWORKS.values() for name in entry.formats} == set(FORMAT_LABELS)
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
    assert [plain(number) for number in (0.05, 2.0, 20000.0)] == ["0.05", "2", "20,000"]


def test_ticks_are_numbers_that_a_reader_would_choose() -> None:
    axes = Figure().add_subplot()
    logarithmic(axes.yaxis, [0.6, 16])
    assert list(axes.get_yticks()) == pytest.approx([0.5, 1, 2, 5, 10, 20])
    measured_ranks(axes.xaxis, [1, 2, 4, 8, 16, 32, 64, 128])
    named = [label.get_text() for label in axes.get_xticklabels()]
    assert named == ["", "2", "", "8", "", "32", "", "128"]
    percent(axes.xaxis, [-1.0, 5.0, 400.0])
    assert list(axes.get_xticks()) == [0, 5, 10, 20, 50, 100]


def test_nothing_is_smaller_than_seven_points_and_the_users_settings_stay() -> None:
    before = dict(mpl.rcParams)
    figure = FIGURES["training"].draw(Study(ranks=(1,)).tables())
    assert dict(mpl.rcParams) == before
    assert min(text.get_fontsize() for text in figure.findobj(mpl.text.Text)) == 7
    assert figure.get_figwidth() == 3.5


@pytest.mark.parametrize("name", ["overhead", "stall", "sizes"])
def test_titles_stay_inside_their_column_and_the_legend_off_the_panels(name: str) -> None:
    study = Study(frameworks=("horovod_tensorflow",), ranks=(2,), models=("resnet50", "vgg16"))
    figure = FIGURES[name].draw(study.tables())
    with paper():
        figure.draw_without_rendering()
    (legend,) = figure.legends
    boxes = [title.get_window_extent() for axes in figure.axes if (title := axes._left_title)]
    assert all(not legend.get_window_extent().overlaps(box) for box in boxes)
    drawn = [box for box in boxes if box.width > 1]
    assert drawn[0].x1 < drawn[1].x0


def test_panels_of_scaling_whose_titles_do_not_fit_stand_below_each_other() -> None:
    tables = Study(
        frameworks=("horovod_tensorflow",),
        models=("resnet50", "vgg16"),
        ranks=(1, 2),
        deterministic=(True, False),
        hardware=("cpu", "gpu"),
    ).tables()
    figure = FIGURES["scaling"].draw(tables)
    with paper():
        figure.draw_without_rendering()
    boxes = [axes._left_title.get_window_extent() for axes in figure.axes]
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)
    assert not any(
        box.overlaps(other) for place, box in enumerate(boxes) for other in boxes[place + 1 :]
    )


def test_scaling_without_any_baseline_shows_what_a_checkpoint_costs() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1, 2)).tables()
    figure = FIGURES["scaling"].draw({**tables, "scaling": tables["scaling"].iloc[:0]})
    assert titles(figure) == ["PyTorch"]


def test_a_script_writes_the_same_pdf_and_png_every_time(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", Study(frameworks=("pytorch",)).tables())
    for place in ("one", "two"):
        write_figure("overhead", tmp_path / "tables", tmp_path / place / "overhead.v1")
    for ending in ("pdf", "png"):
        first, second = (tmp_path / place / f"overhead.v1.{ending}" for place in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()


def test_the_script_says_in_one_line_which_table_is_missing(tmp_path: Path) -> None:
    script = [sys.executable, str(REPOSITORY / "scripts/draw_figure.py"), "sizes"]
    where = ["--tables", str(tmp_path), "--output-stem", str(tmp_path / "sizes")]
    done = subprocess.run(
        [*script, *where, "--log", str(tmp_path / "log")],
        env={"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "sizes.parquet" in done.stderr
    assert (tmp_path / "log").read_text() == done.stderr


def test_the_registry_is_known_without_matplotlib_or_pandas() -> None:
    code = "import sys, ckptbench.figures; print({'matplotlib', 'pandas'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_reads_derived_tables_only(name: str) -> None:
    assert set(FIGURES[name].tables) <= set(DERIVED)


@pytest.mark.parametrize("name", FIGURES)
def test_the_report_has_a_caption_for_every_figure_and_its_tables(name: str) -> None:
    captions = [f"{name}.rst", *(f"table_{table}.rst" for table in FIGURES[name].tables)]
    assert all((REPOSITORY / "workflow/report" / caption).exists() for caption in captions)
