"""The figure on recoveries shows every part of what a failure cost, and the goodput beside it."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
from figure_parts import caption_of, lines, row_labels, titles
from figure_tables import Study, together
from test_figures_proof import BASELINE, WITH_CHECKPOINTS

from ckptbench.analysis.tables.columns import LOST_PARTS
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.recovery import PARTS

FAULTS = ("exponential mean_s=60", "listed name=twice")
STUDY = Study(frameworks=("pytorch", "tensorflow"), ranks=(2,), struck=FAULTS)


def test_every_part_of_the_table_is_in_one_part_of_the_figure() -> None:
    shown = [column for part in PARTS.values() for column in part.columns]
    assert sorted(shown) == sorted(LOST_PARTS)


def test_the_bars_add_up_to_one_failure_and_the_number_says_it() -> None:
    parts, useful = FIGURES["recovery"].draw(STUDY.tables()).axes[:2]
    each = {bar.get_gid() for bar in parts.patches}
    assert each == set(PARTS)
    goodput = STUDY.tables()["goodput"].iloc[0]
    ends = {patch.get_x() + patch.get_width() for patch in parts.patches}
    assert max(ends) == pytest.approx(goodput["parts_s"] / goodput["failures"])
    numbers = {text.get_text() for text in parts.texts}
    assert numbers == {f"{goodput['parts_s'] / 2:.3g} s"}
    (points,) = useful.lines
    assert list(points.get_xdata()) == pytest.approx([100 * goodput["goodput"]] * 2)


def test_each_trace_of_failures_is_a_row() -> None:
    figure = FIGURES["recovery"].draw(STUDY.tables())
    assert titles(figure) == ["PyTorch", "TensorFlow"]
    assert row_labels(figure.axes[0]) == [
        "torch.save · exponential (mean 60 s)",
        "torch.save · listed (twice)",
    ]


@pytest.mark.parametrize(("name", "side"), [("recovery", "x"), ("goodput", "y")])
def test_a_goodput_above_100_percent_is_on_the_axis_which_has_a_line_there(
    name: str, side: str
) -> None:
    tables = STUDY.tables()
    usual, faster, wide = (FIGURES[name].draw(tables) for tables in (tables, *_above(tables)))
    ends = [getattr(figure.axes[-1], f"get_{side}lim")()[1] for figure in (usual, faster, wide)]
    assert ends == pytest.approx([105, 1.05 * 150, 1.05 * 300])
    assert not lines(usual.axes[-1], "whole")
    for figure in (faster, wide):
        (line,) = lines(figure.axes[-1], "whole")
        assert set(getattr(line, f"get_{side}data")()) == {100}


def _above(tables: dict[str, pd.DataFrame]) -> list[dict[str, pd.DataFrame]]:
    """The tables with a goodput of 140 % whose interval ends at 150 %, and one of 150 % whose interval ends at 500 %."""
    changed = []
    for value, end in ((1.4, 1.5), (1.5, 5.0)):
        known = tables["goodput"].copy()
        known.loc[0, ["goodput", "goodput_hi"]] = value, end
        changed.append({**tables, "goodput": known})
    return changed


def test_without_a_failure_the_figure_says_so() -> None:
    figure = FIGURES["recovery"].draw(Study().tables())
    assert not figure.axes


def test_only_a_study_with_faults_asks_for_it() -> None:
    assert not FIGURES["recovery"].shows(BASELINE)
    assert not FIGURES["recovery"].shows(WITH_CHECKPOINTS)
    struck = dataclasses.replace(WITH_CHECKPOINTS, faults=PluginSpec("exponential"))
    assert FIGURES["recovery"].shows(struck)
    assert not FIGURES["overhead"].shows(struck)


RECOVERIES = ("restart", "torchft", "ulfm")
RATES = ("exponential mean_s=240", "exponential mean_s=60", "exponential mean_s=30")


def test_each_recovery_is_a_row_beside_the_others_under_the_same_trace() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), struck=RATES, recoveries=RECOVERIES)
    figure = FIGURES["recovery"].draw(study.tables())
    labels = [" ".join(label.split()) for label in row_labels(figure.axes[0])]
    assert [label.split()[-1] for label in labels] == [*RECOVERIES] * 3
    assert ["mean 30 s" in label for label in labels] == [True] * 3 + [False] * 6


def test_what_fewer_ranks_were_faster_is_left_of_zero_and_in_the_number() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), struck=FAULTS[1:], recoveries=RECOVERIES)
    tables = study.tables()
    tables["goodput"].loc[2, "slower_s"] = -3.0
    figure = FIGURES["recovery"].draw(tables)
    parts = figure.axes[0]
    (gain,) = (bar for bar in parts.patches if bar.get_width() < 0)
    assert (gain.get_gid(), gain.get_x(), gain.get_width()) == ("slower", 0.0, -1.5)
    row = tables["goodput"].iloc[2]
    total = sum(row[name] for name in LOST_PARTS) / row["failures"]
    assert parts.texts[2].get_text() == f"{total:.3g} s"


def test_the_legend_has_the_parts_that_failures_have() -> None:
    tables = STUDY.tables()
    tables["goodput"]["regroup_s"] = 0.0
    figure = FIGURES["recovery"].draw(tables)
    (legend,) = figure.legends
    names = [text.get_text().strip() for text in legend.get_texts()]
    assert "load" in names


def test_the_goodput_has_a_curve_for_each_recovery_against_the_rate_of_failures() -> None:
    study = Study(
        frameworks=("chainer", "pytorch"), ranks=(2,), struck=RATES, recoveries=RECOVERIES
    )
    tables = study.tables()
    figure = FIGURES["goodput"].draw(tables)
    assert titles(figure) == [
        f"{name} · {what}"
        for name in ("Chainer", "PyTorch")
        for what in ("goodput", "goodput of ranks")
    ]
    known = tables["goodput"]
    of_pytorch = known[known["framework"] == "pytorch"]
    for quantity, axes in zip(("goodput", "goodput_of_ranks"), figure.axes[2:], strict=True):
        curves = {str(line.get_label()): line for line in lines(axes, quantity)}
        assert list(curves) == [*RECOVERIES]
        for recovery, curve in curves.items():
            own = of_pytorch[of_pytorch["recovery"] == recovery].sort_values("failures_per_hour")
            assert list(curve.get_xdata()) == pytest.approx(list(own["failures_per_hour"]))
            assert list(curve.get_ydata()) == pytest.approx(list(100 * own[quantity]))
        assert len({str(curve.get_marker()) for curve in curves.values()}) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*RECOVERIES]


def test_traces_that_differ_in_more_than_their_rate_are_points_without_a_line() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), struck=(*RATES, "listed name=twice"))
    axes = FIGURES["goodput"].draw(study.tables()).axes[0]
    curve, points = lines(axes, "goodput")
    assert (len(curve.get_xdata()), len(points.get_xdata())) == (len(RATES), 1)
    assert (curve.get_linestyle() != "None", points.get_linestyle()) == (True, "None")


def test_where_no_rank_was_missed_there_is_one_goodput() -> None:
    figure = FIGURES["goodput"].draw(STUDY.tables())
    assert titles(figure) == ["PyTorch", "TensorFlow"]
    assert "Goodput of ranks" not in caption_of(figure)


def test_a_format_that_the_framework_and_the_strategy_decide_is_not_in_the_legend() -> None:
    shared = Study(frameworks=("chainer", "pytorch"), ranks=(2,), struck=RATES, recoveries=("restart", "ulfm"))  # fmt: skip
    tables = together(shared, dataclasses.replace(shared, frameworks=("pytorch",), strategies=("deepfreeze",)))  # fmt: skip
    (legend,) = FIGURES["goodput"].draw(tables).legends
    names = [text.get_text() for text in legend.get_texts() if text.get_text().strip()]
    assert set(names) == {f"{recovery}, {strategy}" for recovery in ("restart", "ulfm") for strategy in ("native", "deepfreeze")}  # fmt: skip


def test_many_curves_are_in_panels_by_their_interval() -> None:
    study = Study(
        frameworks=("pytorch",), ranks=(2,), struck=RATES, recoveries=RECOVERIES,
        strategies=("native", "async"), intervals=("e1", "s50"),
    )  # fmt: skip
    figure = FIGURES["goodput"].draw(study.tables())
    assert len(set(titles(figure))) == len(figure.axes) == 4
    assert {title.rpartition(" · ")[0] for title in titles(figure)} == {"PyTorch · every 50 steps", "PyTorch · every epoch"}  # fmt: skip
    assert all(len(lines(axes, "goodput")) in (0, 6) for axes in figure.axes)


def test_without_a_failure_there_is_no_goodput() -> None:
    assert not FIGURES["goodput"].draw(Study().tables()).axes
