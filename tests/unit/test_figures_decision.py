"""The figures on the decision show the tables, and tell what was measured from what is projected."""

from __future__ import annotations

import pandas as pd
import pytest
from decision_tables import decided
from figure_parts import caption_of, legend_of, lines, row_labels, titles
from figure_tables import Study, empty_tables
from matplotlib.axes import Axes

from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.decided import COLORS, looks
from ckptbench.report.figures.kit.style import LOOKS


def test_advice_has_a_panel_for_each_number_of_gpus_and_says_which_are_projected() -> None:
    figure = FIGURES["advice"].draw(decided("measured"))
    assert titles(figure) == ["2 ranks, measured", "1,024 GPUs, projected", "131,072 GPUs, projected"]  # fmt: skip
    caption = caption_of(figure)
    assert "Projected: steps" in caption
    assert "Llama 3" in caption
    assert "Measured on CPU (a machine)" in caption


def test_trainings_are_compared_with_themselves_alone() -> None:
    tables = decided("trainings")
    models = list(tables["decision_costs"]["model"].unique())
    figures = {name: FIGURES[name].draw(tables) for name in ("advice", "scale")}
    assert len(titles(figures["scale"])) == len(models) == 2
    assert [title.partition("\n")[0] for title in titles(figures["advice"])] == [
        title for title in titles(figures["scale"]) for _ in range(3)
    ]
    assert not any("GPT" in label for label in legend_of(figures["scale"]))


def test_each_setup_has_its_best_interval_and_a_bar_of_those_that_are_fine() -> None:
    tables = decided("measured")
    times, losses = FIGURES["advice"].draw(tables).axes[4:]
    advice = tables["advice"]
    own = advice[(advice["gpus"] == 131_072) & (advice["rate"] == "llama3")]
    lost = 100 * (1 - own["goodput"])
    assert points(times, "best") == places(own["best_minutes"])
    in_use = own["best_minutes"] * own["in_use_steps"] / own["best_steps"]
    assert points(times, "in_use") == places(in_use)
    assert points(losses, "best") == places(lost)
    assert points(losses, "in_use") == places(100 * (1 - own["goodput_in_use"]))
    fine = [bar for bar in times.patches if bar.get_gid() == "fine"]
    has_fine = own[own["goodput"] >= 0.5]
    assert len(fine) == len(has_fine) > 0
    assert sorted(bar.get_x() for bar in fine) == places(has_fine["fine_from_minutes"])
    ends = sorted(bar.get_x() + bar.get_width() for bar in fine)
    assert ends == places(has_fine["fine_to_minutes"])
    assert times.get_xscale() == losses.get_xscale() == "log"
    low, high = losses.get_xlim()
    assert low < lost.min()
    assert high > 100 * (1 - own["goodput_in_use"]).max()


def test_each_setup_is_a_row_of_its_own_and_the_legend_says_what_marks_are() -> None:
    figure = FIGURES["advice"].draw(decided("several"))
    assert legend_of(figure) == ["fine", "best interval", "interval in use"]
    for axes in figure.axes[::2]:
        labels = row_labels(axes)
        assert len(labels) == len(set(labels)) == len(lines(axes, "best"))
        assert len({line.get_ydata()[0] for line in lines(axes, "best")}) == len(labels)
    assert "Chainer, native, restart" in row_labels(figure.axes[-2])


def points(axes: Axes, gid: str) -> list[float]:
    return sorted(line.get_xdata()[0] for line in lines(axes, gid))


def places(values: pd.Series) -> object:
    return [pytest.approx(value) for value in sorted(values)]


def test_intervals_that_are_not_foremost_have_no_point() -> None:
    both, one = (FIGURES["advice"].draw(decided(kind)).axes[4] for kind in ("two intervals", "measured"))  # fmt: skip
    assert points(both, "best") == points(one, "best")


def test_only_the_most_ranks_are_projected_from() -> None:
    figure = FIGURES["advice"].draw(decided("several"))
    measured = [title for title in titles(figure) if "measured" in title]
    assert measured == ["1 rank, measured", "2 ranks, measured"]
    assert {*row_labels(figure.axes[2])} >= {"Chainer, native, restart", "PyTorch, native, restart"}
    projected = [axes for axes in figure.axes if "projected" in axes.get_title(loc="left")]
    assert all(len(lines(axes, "best")) == 8 for axes in projected)


def test_costs_of_a_file_are_said_not_to_be_measured_here() -> None:
    figure = FIGURES["advice"].draw(decided("given"))
    assert titles(figure)[0] == "512 GPUs, as given"
    assert "With my training." in caption_of(figure)
    assert "measured" not in caption_of(figure).replace("not measured here", "")
    assert "Costs of costs-example.yaml, not measured here." in caption_of(figure)


def test_scale_joins_measured_points_by_a_solid_and_projected_ones_by_a_dashed_line() -> None:
    tables = decided("several")
    figure = FIGURES["scale"].draw(tables)
    (axes,) = figure.axes
    measured, projected = lines(axes, "measured"), lines(axes, "projected")
    assert {tuple(line.get_xdata()) for line in measured} == {(1, 2), (2,)}
    assert all(line.get_xdata()[0] == 2 for line in projected)
    assert all(line.get_linestyle() != "-" for line in projected)
    assert all(line.get_xdata()[-1] == 131_072 for line in projected)


def test_scale_draws_replicas_beside_shards_whose_checkpoints_cost_less_and_less() -> None:
    tables = decided("shards")
    figure = FIGURES["scale"].draw(tables)
    assert {"PyTorch", "PyTorch FSDP2"} <= {name.partition(",")[0] for name in legend_of(figure)}
    (axes,) = figure.axes
    assert {tuple(line.get_xdata()) for line in lines(axes, "measured")} == {(1, 2, 4)}
    ends = tables["scale"].query("gpus == gpus.max()").groupby("framework")["goodput"].max()
    assert ends["pytorch_fsdp"] > ends["pytorch"]


@pytest.mark.parametrize("name", ["advice", "scale"])
def test_without_anything_to_decide_from_a_figure_says_so(name: str) -> None:
    tables = {**empty_tables(), "provenance": Study().tables()["provenance"]}
    figure = FIGURES[name].draw(tables)
    assert [text.get_gid() for text in figure.texts].count("nothing") == 1


def test_a_curve_that_is_a_framework_has_its_color_in_every_figure() -> None:
    styles = looks(["Chainer", "PyTorch"])
    assert {name: own["color"] for name, own in styles.items()} == {
        "Chainer": LOOKS["chainer"].color,
        "PyTorch": LOOKS["pytorch"].color,
    }
    assert [own["color"] for own in looks(["native", "PyTorch, native"]).values()] == [*COLORS[:2]]
