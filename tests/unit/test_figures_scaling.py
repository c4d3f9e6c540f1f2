"""Scaling: measured ranks only, and the ideal."""

from __future__ import annotations

import pytest
from figure_parts import SMALL, legend_of, lines, titles
from figure_tables import Study

from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit.style import paper


def test_scaling_shows_measured_ranks_only_and_the_ideal_from_the_fewest() -> None:
    figure = FIGURES["scaling"].draw(Study(ranks=(2, 4, 6)).tables())
    throughput, *costs = figure.axes
    assert list(throughput.get_xticks()) == [2, 4, 6]
    assert throughput.get_xlim()[1] < 8
    measured, ideal = lines(throughput, "measured")[0], lines(throughput, "ideal")[0]
    assert ideal.get_ydata()[0] == measured.get_ydata()[0]
    assert ideal.get_ydata()[-1] == pytest.approx(3 * measured.get_ydata()[0])
    assert [len(lines(axes, "stall_s")) for axes in costs] == [1, 1, 1]
    names = ["Chainer", "PyTorch", "TensorFlow"]
    assert titles(figure) == ["Throughput", *(f"One checkpoint · {name}" for name in names)]


def test_where_ranks_share_the_cores_of_a_machine_scaling_shows_what_these_allow() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1, 2, 4), shared_cores=True)
    figure = FIGURES["scaling"].draw(study.tables())
    throughput = figure.axes[0]
    (measured,), (allowed,) = lines(throughput, "measured"), lines(throughput, "cores allow")
    assert list(allowed.get_xdata()) == [1, 2, 4]
    assert list(allowed.get_ydata()) == pytest.approx([measured.get_ydata()[0]] * 3)
    assert legend_of(figure) == ["PyTorch", "ideal", "cores allow"]


def test_where_each_rank_has_cores_of_its_own_scaling_shows_the_ideal_alone() -> None:
    for hardware in ("cpu", "gpu"):
        figure = FIGURES["scaling"].draw(Study(hardware=(hardware,)).tables())
        assert "cores allow" not in legend_of(figure)


def test_the_axes_of_scaling_hold_the_ideal_and_both_ends_of_every_interval() -> None:
    tables = Study(frameworks=("chainer",), ranks=(1, 2)).tables()
    rates = ["samples_per_s_lo", "samples_per_s", "samples_per_s_hi"]
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


STRATEGIES = ("native", "sharded", "async", "deepfreeze", "dcp_async")


def test_strategies_get_panels_of_their_own_where_one_would_hold_too_many_curves() -> None:
    study = Study(frameworks=("pytorch",), strategies=STRATEGIES, intervals=("e1", "s3"))
    figure = FIGURES["scaling"].draw(study.tables())
    names = ["native", "sharded", "async", "deepfreeze", "dcp async"]
    panels = [f"One checkpoint · PyTorch · {name}" for name in names]
    assert sorted(" ".join(title.split()) for title in titles(figure)) == sorted(
        ["Throughput", *panels]
    )
    assert legend_of(figure)[-2:] == ["every epoch", "every 3 steps"]
    for axes in figure.axes[1:]:
        assert len(lines(axes, "stall_s")) == len(lines(axes, "durable_s")) == 2
        assert axes.get_ylim() == figure.axes[1].get_ylim()


def test_curves_that_can_be_told_apart_stay_in_one_panel() -> None:
    study = Study(frameworks=("pytorch",), strategies=STRATEGIES[:4], intervals=("e1",))
    figure = FIGURES["scaling"].draw(study.tables())
    assert titles(figure) == ["Throughput", "One checkpoint · PyTorch"]
    drawn = lines(figure.axes[1], "stall_s")
    assert len({str(line._unscaled_dash_pattern) for line in drawn}) == 4


def test_scaling_without_any_baseline_shows_what_a_checkpoint_costs() -> None:
    tables = Study(frameworks=("pytorch",), ranks=(1, 2)).tables()
    figure = FIGURES["scaling"].draw({**tables, "scaling": tables["scaling"].iloc[:0]})
    assert titles(figure) == ["One checkpoint · PyTorch"]
