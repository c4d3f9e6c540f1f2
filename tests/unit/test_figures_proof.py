"""The figures on restarts say what is bitwise equal, where the rest parts, and whether cold was cold."""

from __future__ import annotations

import dataclasses
import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from figure_parts import caption_of, lines, row_labels, titles
from figure_tables import Study, together
from matplotlib.figure import Figure
from proof_tables import Restarts

from ckptbench.analysis.proof.restore import COLD, WARM
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import FRAMEWORKS
from ckptbench.report.figures import FIGURES, proofs
from ckptbench.report.figures.divergence import distance
from ckptbench.report.figures.kit.style import PART_COLORS, look, paper

PROOFS = ("determinism", "divergence")
EVERY = tuple(FRAMEWORKS)
BOTH = (True, False)
EQUAL = Restarts(parting=frozenset())
PARTED = Restarts(parting=frozenset({("pytorch", False)}))
ONE = Study(frameworks=("pytorch",), ranks=(2,), deterministic=BOTH, restarts=PARTED)
BASELINE = Cell(
    framework="pytorch", model="small_cnn", dataset="digits", ranks=2, batch_size=8, epochs=2,
    format="none", interval=Interval.parse("never"),
)  # fmt: skip
WITH_CHECKPOINTS = dataclasses.replace(BASELINE, format="torch_save", interval=Interval.parse("e1"))


def shows(name: str, **changes: object) -> bool:
    return FIGURES[name].shows(dataclasses.replace(WITH_CHECKPOINTS, **changes))


def test_a_study_asks_only_for_figures_that_have_something_to_show() -> None:
    ordinary = {
        name
        for name, entry in FIGURES.items()
        if entry.shows(BASELINE) or entry.shows(WITH_CHECKPOINTS)
    }
    assert ordinary == {
        "overhead", "strategies", "stall", "timeline", "sizes", "scaling", "advice", "scale", "determinism_cost",
    }  # fmt: skip
    assert not FIGURES["strategies"].shows(BASELINE)
    assert not FIGURES["timeline"].shows(BASELINE)
    assert {name for name in FIGURES if shows(name, history="rerun")} == set(PROOFS)
    assert shows("restore", faults=PluginSpec("killed_inside"))
    assert not shows("recovery", faults=PluginSpec("killed_inside"))


def test_a_cost_of_determinism_that_one_sentence_says_is_not_drawn() -> None:
    def is_drawn(*modes: bool, ranks: tuple[int, ...]) -> bool:
        each = itertools.product(modes, ranks, (0, 1))
        cells = [dataclasses.replace(BASELINE, deterministic=mode, ranks=n, repeat=i) for mode, n, i in each]  # fmt: skip
        return FIGURES["determinism_cost"].is_of(cells)

    assert is_drawn(True, False, ranks=(1, 2))
    assert not is_drawn(True, False, ranks=(2,))
    assert not is_drawn(True, ranks=(1, 2))
    assert not is_drawn(False, ranks=(1, 2))


@pytest.mark.parametrize("name", ["determinism", "determinism_cost", "divergence", "restore"])
@pytest.mark.parametrize(
    "study",
    [
        Study(frameworks=EVERY, ranks=(2,), deterministic=BOTH, repeats=1),
        Study(frameworks=("pytorch",), ranks=(1,), repeats=1, epochs=1, restarts=EQUAL),
        Study(
            frameworks=("horovod_tensorflow",),
            models=("resnet50", "vgg16"),
            epochs=30,
            repeats=1,
            restarts=Restarts(controls=False),
        ),
        Study(frameworks=("chainer",), ranks=(2,), hardware=("cpu", "gpu"), repeats=1),
    ],
)
def test_no_text_is_cut_and_words_above_panels_overlap_nothing(name: str, study: Study) -> None:
    figure = FIGURES[name].draw(study.tables())
    with paper():
        figure.draw_without_rendering()
        ticks = {label for axes in figure.axes for label in axes.get_xticklabels(which="both")}
        texts = [t for t in figure.findobj(mpl.text.Text) if t not in ticks and t.get_text()]
        boxes = [(text, text.get_window_extent()) for text in texts]
    page = figure.bbox
    assert not [t for t, b in boxes if b.x0 < -1 or b.x1 > page.x1 + 1 or b.y1 > page.y1 + 1]
    titles = {axes._left_title for axes in figure.axes}
    above = [box.padded(-2) for text, box in boxes if text in titles]
    others = [axes.bbox for axes in figure.axes]
    for place, box in enumerate(above):
        assert not any(box.overlaps(other) for other in [*others, *above[place + 1 :]])


def test_where_a_framework_lacks_a_mode_no_half_of_a_line_is_empty() -> None:
    tables = Study(frameworks=EVERY, ranks=(1, 2), deterministic=BOTH, repeats=1).tables()
    only_deterministic = tables["restore"]["framework"].isin(EVERY[:3])
    rows = tables["restore"][tables["restore"]["deterministic"] | ~only_deterministic]
    figure = FIGURES["restore"].draw({**tables, "restore": rows})
    with paper():
        figure.draw_without_rendering()
        ends = [axes._left_title.get_window_extent().x1 for axes in figure.axes]
    assert max(ends) <= figure.bbox.x1
    assert len({axes.get_position().x0 for axes in figure.axes}) == 2


@pytest.mark.parametrize("name", PROOFS)
def test_the_caption_counts_what_is_bitwise_equal_in_each_mode(name: str) -> None:
    text = caption_of(FIGURES[name].draw(ONE.tables()))
    assert "Deterministic mode, resumed runs: 18 of 18 bitwise equal." in text
    assert "Deterministic mode, second runs of the same seed: 3 of 3 bitwise equal." in text
    assert "Default mode, resumed runs: 0 of 18 bitwise equal." in text


@pytest.mark.parametrize("name", PROOFS)
def test_the_caption_names_frameworks_and_ranks_that_are_not_equal(name: str) -> None:
    study = Study(frameworks=("chainer", "pytorch"), restarts=PARTED)
    tables = study.tables()
    assert "resumed runs: 36 of 72 bitwise equal, not PyTorch (36 of 36)." in caption_of(
        FIGURES[name].draw(tables)
    )
    proof = tables["resume_proof"]
    proof.loc[proof["ranks"] == 2, "bit_equal"] = True
    text = caption_of(FIGURES[name].draw(tables))
    assert "resumed runs: 54 of 72 bitwise equal, not PyTorch, 1 rank (18 of 18)." in text
    assert "and the largest number of ranks; the counts that follow cover all" in text
    # Of the figures, `divergence` shows only what differs.
    assert f"epochs, {'1 rank' if name == 'divergence' else '2 ranks'}. " in text


def test_resumed_and_second_runs_are_drawn_over_the_uninterrupted_one() -> None:
    figure = FIGURES["determinism"].draw(ONE.tables())
    far = "part at epoch 2, loss \N{PLUS-MINUS SIGN}0.021, accuracy \N{PLUS-MINUS SIGN}1.6 %"
    assert [" ".join(title.split()) for title in titles(figure)] == [
        "PyTorch, deterministic mode resumed: bitwise equal rerun: bitwise equal",
        f"PyTorch, default mode resumed: {far} rerun: {far}",
    ]
    for axes in figure.axes:
        kinds = ["uninterrupted", "same seed again", "killed and resumed"]
        assert [line.get_gid() for line in axes.lines] == kinds
    equal, parted = figure.axes[0], figure.axes[2]
    whole, _, resumed = (list(line.get_ydata()) for line in equal.lines)
    assert resumed == pytest.approx(whole)
    whole, _, resumed = (list(line.get_ydata()) for line in parted.lines)
    assert resumed != pytest.approx(whole)


def test_perplexity_stands_where_other_models_have_accuracy() -> None:
    named = {}
    for model in ("resnet50", "gpt_baby"):
        figure = FIGURES["determinism"].draw(dataclasses.replace(ONE, models=(model,)).tables())
        named[model] = [axes.get_ylabel() for axes in figure.axes]
    assert named["resnet50"] == ["Training loss", "Test accuracy (%)"] * 2
    assert named["gpt_baby"] == ["Training loss", "Test perplexity"] * 2
    first = figure.axes[1].lines[0].get_ydata()[0]
    assert first == pytest.approx(np.exp(1.1 * 2.3 * np.exp(-0.42) * 1.06), rel=0.1)


def test_a_proof_without_evaluation_has_no_panel_for_it() -> None:
    tables = ONE.tables()
    figure = FIGURES["determinism"].draw({**tables, "evaluations": tables["evaluations"][:0]})
    assert [axes.get_ylabel() for axes in figure.axes] == ["Training loss"] * 2


def test_how_far_an_unknown_loss_or_accuracy_parts_is_left_out() -> None:
    tables = ONE.tables()
    tables["resume_proof"]["accuracy_difference"] = float("nan")
    title = titles(FIGURES["determinism"].draw(tables))[-1]
    assert title.endswith("loss \N{PLUS-MINUS SIGN}0.021")


def test_a_control_without_part_of_the_state_is_no_curve_and_no_verdict() -> None:
    with_controls, without = (
        FIGURES["determinism"].draw(
            dataclasses.replace(ONE, restarts=Restarts(controls=on)).tables()
        )
        for on in (True, False)
    )
    for drawn, expected in zip(with_controls.axes, without.axes, strict=True):
        for line, same in zip(drawn.lines, expected.lines, strict=True):
            assert list(line.get_ydata()) == list(same.get_ydata())
    assert titles(with_controls) == titles(without)


@pytest.mark.parametrize("name", PROOFS)
def test_restarts_are_marked_where_they_went_on(name: str) -> None:
    tables = ONE.tables()
    honest = tables["restore"].query("deterministic and omit == 'nothing'")
    axes = FIGURES[name].draw(tables).axes[0]
    marked = [
        x
        for artist in [*axes.collections, *axes.lines]
        if artist.get_gid() == "restart"
        for x in (
            artist.get_xdata()
            if isinstance(artist, mpl.lines.Line2D)
            else [segment[0][0] for segment in artist.get_segments()]
        )
    ]
    assert marked == sorted(honest["epoch"].unique())


def test_runs_of_the_same_seed_alone_are_shown_without_a_restart() -> None:
    study = dataclasses.replace(ONE, restarts=Restarts(histories=("rerun",), controls=False))
    for name in PROOFS:
        figure = FIGURES[name].draw(study.tables())
        with paper():
            figure.draw_without_rendering()
        assert not any("resumed" in title for title in titles(figure))


@pytest.mark.parametrize("name", PROOFS)
def test_what_was_compared_in_one_way_alone_is_counted_and_not_drawn(name: str) -> None:
    once = Restarts(histories=("killed_between",), caches=("cold",), controls=False)
    aside = Study(
        frameworks=("pytorch",), ranks=(1,), models=("small_cnn",), batch_size=8, epochs=2,
        deterministic=(True,), restarts=once,
    )  # fmt: skip
    figure = FIGURES[name].draw(together(ONE, aside))
    assert titles(figure)[0].startswith("PyTorch, de")
    text = caption_of(figure)
    assert "with the most comparisons" in text
    assert "Deterministic mode, resumed runs: 21 of 21 bitwise equal" in text
    assert "ResNet-50" in text
    assert "small CNN" not in text


def test_a_verdict_says_how_many_runs_part_and_from_when_on() -> None:
    def runs(*epochs: int | None) -> pd.DataFrame:
        """An epoch for each run that parts, -1 for one that does not, None for one at the end alone."""
        first = [None if epoch == -1 else epoch for epoch in epochs]
        return pd.DataFrame(
            {"bit_equal": [e == -1 for e in epochs], "first_epoch": pd.array(first, dtype="Int64")}
        )

    assert [proofs.verdict(runs(*epochs)) for epochs in ([-1], [2], [2, 2], [1, 2], [-1, 2])] == [
        "bitwise equal",
        "parts at epoch 3",
        "part at epoch 3",
        "part from epoch 2",
        "1 of 2 part at epoch 3",
    ]
    assert proofs.verdict(runs(None)) == "parts at the end"


def test_divergence_shades_each_group_by_its_share_of_different_tensors() -> None:
    figure = FIGURES["divergence"].draw(ONE.tables())
    resumed, _ = figure.axes
    groups = ["weights", "momentum", "statistics", "random states", "counters", "data position"]
    assert row_labels(resumed) == groups
    (mesh,) = (c for c in resumed.collections if c.get_gid() == "shares")
    shares = mesh.get_array().reshape(len(groups), 5)
    assert list(shares[0]) == pytest.approx([0, 1 / 3, 2 / 3, 1, 1])
    assert not shares[2:].any()
    assert titles(figure) == [
        f"PyTorch, default mode, {kind}\n2e9 ULP, L2 0.031" for kind in ("resumed", "rerun")
    ]


def nothing(figure: Figure) -> list[str]:
    """What a figure says in the place of panels."""
    found = figure.findobj(lambda artist: artist.get_gid() == "nothing")
    return [" ".join(text.get_text().split()) for text in found]


def test_where_nothing_differs_a_line_says_so_in_the_place_of_panels() -> None:
    alone = dataclasses.replace(ONE, restarts=dataclasses.replace(EQUAL, controls=False))
    figure = FIGURES["divergence"].draw(alone.tables())
    assert figure.axes == []
    assert nothing(figure) == [
        "Every run is bitwise equal to the uninterrupted run of the same seed: no tensor differs."
    ]
    assert figure.get_figheight() < 2
    assert "Deterministic mode, resumed runs: 18 of 18 bitwise equal." in caption_of(figure)


def test_a_panel_without_any_difference_is_left_out() -> None:
    study = Study(deterministic=BOTH, restarts=dataclasses.replace(PARTED, controls=False))
    tables = study.tables()
    proof = tables["resume_proof"]
    proof.loc[proof["history"] == "rerun", "bit_equal"] = True
    parted = proof[~proof["bit_equal"] & proof["omit"].eq("nothing")]
    first = parted.groupby("ranks").head(1)
    proof.loc[first.index, "bit_equal"] = True  # those of the others are shown all the same
    figure = FIGURES["divergence"].draw(tables)
    assert titles(figure) == ["PyTorch, default mode, resumed\n2e9 ULP, L2 0.031"]
    text = caption_of(figure)
    assert "Panels show only differences" in text
    assert "Default mode, second runs of the same seed: 18 of 18 bitwise equal" in text


def test_what_differs_is_shown_where_more_ranks_do_not_differ() -> None:
    tables = dataclasses.replace(ONE, ranks=(1, 2)).tables()
    proof = tables["resume_proof"]
    proof.loc[(proof["ranks"] == 2) & (proof["omit"] == "nothing"), "bit_equal"] = True
    assert "1 rank. Measured" in caption_of(FIGURES["divergence"].draw(tables))


def test_the_distance_is_that_of_the_run_farthest_off() -> None:
    runs = pd.DataFrame(
        {
            "bit_equal": [True, False],
            "max_ulp": pd.array([0, 12], dtype="Int64"),
            "relative_l2": [0.0, 2e-7],
        }
    )
    assert distance(runs) == "12 ULP, L2 2e-7"
    assert distance(runs[:1]) == "bitwise equal"
    assert distance(runs.assign(max_ulp=0, relative_l2=0.0)) == "weights, momentum equal"
    unknown = runs.assign(max_ulp=pd.array([0, None], dtype="Int64"))
    assert distance(unknown) == "L2 2e-7"


def test_a_distance_that_is_not_known_of_every_run_is_not_named() -> None:
    def runs(ulp: list[int | None], norm: list[float]) -> pd.DataFrame:
        equal = [False] * len(ulp)
        ulps = pd.array(ulp, dtype="Int64")
        return pd.DataFrame({"bit_equal": equal, "max_ulp": ulps, "relative_l2": norm})

    nan = float("nan")
    assert distance(runs([None, None], [nan, nan])) == "distance not recorded"
    assert distance(runs([None, 0], [nan, 0.0])) == "distance not recorded"
    assert distance(runs([None, 3], [0.5, 0.1])) == "L2 0.5"
    assert distance(runs([0, 3], [0.5, nan])) == "3 ULP"
    assert distance(runs([0, 0], [0.0, nan])) == "0 ULP"
    assert distance(runs([0, 0], [0.0, 0.0])) == "weights, momentum equal"


def test_a_large_models_divergence_is_drawn_without_a_distance() -> None:
    tables = ONE.tables()
    tables["resume_proof"][["max_ulp", "relative_l2"]] = pd.NA, float("nan")
    figure = FIGURES["divergence"].draw(tables)
    assert all(title.endswith("\ndistance not recorded") for title in titles(figure))


def test_the_cost_of_determinism_is_in_percent_beside_a_zero_line() -> None:
    tables = Study(frameworks=("pytorch", "tensorflow")).tables()
    tables["determinism_cost"].loc[0, "cost_lo"] = -0.01
    figure = FIGURES["determinism_cost"].draw(tables)
    assert titles(figure) == ["PyTorch", "TensorFlow"]
    for axes, framework in zip(figure.axes, ("pytorch", "tensorflow"), strict=True):
        assert row_labels(axes) == ["1 rank", "2 ranks"]
        (cost,) = lines(axes, "cost")
        assert cost.get_color() == look(framework).color
        assert axes.get_xlim()[0] <= -1
        assert any(list(line.get_xdata()) == [0, 0] for line in axes.lines)
    assert list(lines(figure.axes[0], "cost")[0].get_xdata()) == pytest.approx([11, 11])
    assert "3 of 4 intervals lie above zero" in caption_of(figure)


def test_a_restart_is_the_sum_of_its_phases_warm_and_cold_beside_each_other() -> None:
    study = dataclasses.replace(ONE, deterministic=(False,))
    restore = study.tables()["restore"].query("omit == 'nothing'")
    phases, read = FIGURES["restore"].draw(study.tables()).axes
    assert row_labels(phases) == ["warm", "cold"]
    for place, cache in enumerate(("warm", "cold")):
        own = restore[restore["cache"] == cache]
        parts = [patch for patch in phases.patches if round(patch.get_y() + 0.3) == place]
        assert [patch.get_gid() for patch in parts][-2:] == ["load_s", "first_step_s"]
        assert sum(patch.get_width() for patch in parts) == pytest.approx(own["total_s"].median())
    loads = [patch for patch in phases.patches if patch.get_gid() == "load_s"]
    assert {mpl.colors.to_hex(patch.get_facecolor()) for patch in loads} == {PART_COLORS[2]}
    (points,) = lines(read, "read")
    assert list(points.get_xdata()) == [0, 100]


def test_a_cold_load_that_was_not_shown_to_be_cold_is_shaded() -> None:
    restarts = Restarts(cold_shown=(("chainer", False), ("pytorch", None)))
    figure = FIGURES["restore"].draw(Study(ranks=(2,), restarts=restarts).tables())
    shaded = [
        [patch.get_y() for patch in axes.patches if patch.get_gid() == "not shown"]
        for axes in figure.axes
    ]
    assert shaded == [[0.5], [0.5], [0.5], [0.5], [], []]
    assert [text.get_text() for text in figure.axes[3].texts] == ["not counted"]
    assert "In 2 of 6 rows (shaded) the counters do not confirm this" in caption_of(figure)


@pytest.mark.parametrize("times", [0.0, 1.0, 1.4, 2.5, 10.0, 64.0])
def test_the_ticks_of_what_was_read_stand_apart_however_often_a_small_checkpoint_reads_itself(
    times: float,
) -> None:
    tables = ONE.tables()
    cold = tables["restore"]["cache"] == "cold"
    tables["restore"].loc[cold, "read_bytes"] = int(times * 188_000_000)
    figure = FIGURES["restore"].draw(tables)
    with paper():
        figure.draw_without_rendering()
        read = figure.axes[1]
        boxes = [tick.label1.get_window_extent() for tick in read.xaxis.get_major_ticks()]
    assert len(boxes) >= 2
    assert all(one.x1 + 2 < other.x0 for one, other in itertools.pairwise(boxes))


def test_the_bounds_of_cold_and_warm_are_those_of_the_table() -> None:
    figure = FIGURES["restore"].draw(ONE.tables())
    (bounds,) = (c for c in figure.axes[1].collections if c.get_gid() == "bounds")
    assert [line[0][0] for line in bounds.get_segments()] == pytest.approx([100 * COLD, 100 * WARM])
    text = caption_of(figure)
    assert f"at least {100 * COLD:.0f} % on every node" in text
    assert f"less than {100 * WARM:.0f} % on every node" in text


def test_a_restart_with_nothing_to_load_is_no_restore() -> None:
    tables = ONE.tables()
    tables["restore"]["step"] = 0
    assert not FIGURES["restore"].draw(tables).axes
