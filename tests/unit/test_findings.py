"""What the report begins with: sentences that say what the tables say, and no more."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from ckptbench.figures.findings import TABLES
from ckptbench.figures.findings.page import MEASURED, NO_INTERVALS, OF_RATE, findings, page
from decision_tables import decided
from docutils.core import publish_doctree
from docutils.nodes import list_item, system_message
from figure_tables import Study, empty_tables, together
from proof_tables import Restarts

from ckptbench.analysis.tables.registry import DERIVED
from ckptbench.answer.words import IMAGES, PERCENT, SECONDS, amount, listed, size
from ckptbench.answer.words import MOST as MOST_SENTENCES

Tables = dict[str, pd.DataFrame]
COSTS = "What checkpoints cost"
STRATEGIES = "How long strategies block training"
RANKS = "More ranks, without checkpoints"
VERSIONS = "Whether a checkpoint is the state of its step"
RESTARTS = "What a restart gives back"
MODE = "What deterministic mode costs"
RESTORE = "How long a restart takes, from its launch to the end of its first step"
WHERE = "What was measured, and where"

UNDISTURBED = Restarts(histories=(), controls=False)
PAIR = Study(frameworks=("chainer", "pytorch"), ranks=(2,), restarts=UNDISTURBED)


def changed(tables: Tables, name: str, framework: str, **values: object) -> Tables:
    """The tables, with these values in the rows of one framework."""
    rows = tables[name].copy()
    for column, value in values.items():
        rows.loc[rows["framework"] == framework, column] = value
    return {**tables, name: rows}


def without(tables: Tables, *names: str) -> Tables:
    return {**tables, **{name: DERIVED[name].table.rows([]) for name in names}}


def stalls(tables: Tables, **by_framework: tuple[float, float, float]) -> Tables:
    """The tables, with the stall of each framework and the ends of its interval."""
    for framework, (stall, lo, hi) in by_framework.items():
        tables = changed(
            tables, "checkpoint_cost", framework, stall_s=stall, stall_s_lo=lo, stall_s_hi=hi
        )
    return tables


def overheads(tables: Tables, framework: str, value: float, lo: float, hi: float) -> Tables:
    ends = {"paired": value, "paired_lo": lo, "paired_hi": hi, "agree": True}
    return changed(tables, "overhead", framework, **ends)


@pytest.mark.parametrize(
    ("value", "lo", "hi", "shown"),
    [
        (0.1234, 0.1101, 0.1402, "12 % [11, 14]"),
        (0.0283, 0.0072, 0.0481, "2.8 % [0.7, 4.8]"),
        (0.002, -0.004, 0.009, "0.2 % [-0.4, 0.9]"),
        (9.182, 3.513, 21.974, "900 % [400, 2200]"),
        (0.1927, -0.6269, 2.8122, "20 % [-60, 280]"),
        (0.12, math.nan, math.nan, "12 %"),
        (-0.0512, math.nan, math.nan, "-5.1 %"),
        (1.78, math.nan, math.nan, "180 %"),
        (0.0, math.nan, math.nan, "0 %"),
        (0.41, -0.95, 15.1, "40 % [-100, 1500]"),
        (-0.41, -15.1, 0.95, "-40 % [-1500, 100]"),
        (0.003, -1.0, 1.0, "0 % [-100, 100]"),
        (0.0991081, 0.0991070, 0.0991091, "9.911 %"),
        (0.10049, 0.10036, 0.10062, "10.05 % [10.04, 10.06]"),
    ],
)
def test_a_number_has_the_digits_that_its_interval_allows(
    value: float, lo: float, hi: float, shown: str
) -> None:
    assert amount({"x": value, "x_lo": lo, "x_hi": hi}, "x", PERCENT) == shown


def test_an_end_above_zero_is_not_shown_as_zero() -> None:
    assert amount({"x": 0.028, "x_lo": 0.0021, "x_hi": 0.431}, "x", SECONDS) == "0.028 s [0.002, 0.431]"  # fmt: skip
    assert amount({"x": 900.0, "x_lo": 200.0, "x_hi": 4500.0}, "x", IMAGES) == "900 images/s [200, 4500]"  # fmt: skip


def test_sizes_and_lists_in_words() -> None:
    assert [size(n) for n in (188_700_000, 53_400, 2.1e9, 1, 12)] == ["189 MB", "53.4 kB", "2.10 GB", "1 byte", "12 bytes"]  # fmt: skip
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"], ["a, 1", "b"])] == ["a", "a and b", "a, b and c", "a, 1; b"]  # fmt: skip


def of_strategies(formats_each: int = 1, **stalls_s: tuple[float, float, float]) -> list[str]:
    """What is said of PyTorch on two ranks with these stalls and the ends of their intervals."""
    study = Study(
        frameworks=("pytorch",), ranks=(2,), strategies=tuple(stalls_s), formats_each=formats_each,
        restarts=UNDISTURBED,
    )  # fmt: skip
    tables = study.tables()
    costs = tables["checkpoint_cost"]
    for strategy, ends in stalls_s.items():
        own = costs["strategy"] == strategy
        costs.loc[own, ["stall_s", "stall_s_lo", "stall_s_hi"]] = ends
    return findings(tables).get(STRATEGIES, [])


def test_strategies_are_compared_with_native_where_the_intervals_tell_them_apart() -> None:
    said = of_strategies(native=(1.0, 0.8, 1.25), sharded=(0.9, 0.8, 1.0), **{"async": (0.05, 0.04, 0.0625)})  # fmt: skip
    # The distances of both intervals are ln 1.25 to either side: that of the ratio is sqrt(2) of it.
    assert said == [
        "PyTorch, 2 ranks: async blocks training 0.05 [0.04, 0.07] times as long as native."
        " No difference is shown for sharded."
    ]


def test_several_strategies_that_differ_from_native_share_a_sentence() -> None:
    said = of_strategies(
        formats_each=2,
        native=(1.0, 0.99, 1.01),
        sharded=(0.5, 0.49, 0.51),
        **{"async": (2.0, 1.96, 2.04)},
    )
    assert said == [
        "PyTorch, 2 ranks: sharded blocks training 0.500 [0.489, 0.511] times as long as native (torch.save);"
        " async 2.00 [1.96, 2.04]."
    ]


def test_strategies_without_intervals_or_without_native_are_not_compared() -> None:
    nan = math.nan
    assert not of_strategies(native=(1.0, nan, nan), sharded=(0.5, nan, nan))
    assert not of_strategies(sharded=(0.5, 0.4, 0.6), **{"async": (0.05, 0.04, 0.06)})
    assert not of_strategies(native=(1.0, 0.8, 1.25))
    alike = of_strategies(native=(1.0, 0.8, 1.25), sharded=(1.1, 0.8, 1.4))
    assert alike == ["PyTorch, 2 ranks: no difference from native is shown for sharded."]


def test_a_setup_is_told_with_its_stall_its_bytes_and_its_overhead() -> None:
    tables = overheads(stalls(PAIR.tables(), pytorch=(0.31, 0.28, 0.35)), "pytorch", 0.12, 0.09, 0.16)  # fmt: skip
    assert (
        "PyTorch, 2 ranks: a checkpoint stops training for 0.31 s [0.28, 0.35] and weighs 189 MB;"
        " one taken every epoch (10 steps) has an overhead of 12 % [9, 16]."
    ) in findings(tables)[COSTS]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1, "1 run was continued after an interruption and is not timed."),
        (3, "3 runs were continued after an interruption and are not timed."),
    ],
)
def test_runs_that_were_continued_are_said_not_to_be_timed(number: int, said: str) -> None:
    tables = PAIR.tables()
    assert not any("continued" in text for text in findings(tables)[COSTS])
    tables["provenance"]["continued"] = number
    assert findings(tables)[COSTS][-1] == said
    assert findings(without(tables, "overhead"))[COSTS][-1] == said


def test_a_setup_with_levels_is_told_with_how_many_checkpoints_reached_which() -> None:
    reached = "memory 12, node 6, shared 3"
    said = findings(changed(PAIR.tables(), "overhead", "pytorch", levels=reached))[COSTS]
    texts = [
        text
        for text in said
        if f"Of its 12 checkpoints so many reached each level: {reached}." in text
    ]
    assert len(texts) == 1
    assert texts[0].startswith("PyTorch, 2 ranks: a checkpoint stops training")


def test_an_overhead_whose_interval_contains_zero_shows_no_cost() -> None:
    said = findings(overheads(PAIR.tables(), "pytorch", 0.03, -0.02, 0.08))[COSTS]
    assert said[1].endswith("has an overhead of 3 % [-2, 8], which contains zero: no cost is shown.")  # fmt: skip


def test_without_a_baseline_the_overhead_is_that_from_inside_the_run() -> None:
    nothing = {"paired": math.nan, "paired_lo": math.nan, "paired_hi": math.nan, "agree": None}
    inside = {"in_run": 0.05, "in_run_lo": 0.04, "in_run_hi": 0.07}
    said = findings(changed(PAIR.tables(), "overhead", "pytorch", **nothing, **inside))[COSTS]
    assert said[1].endswith("has an overhead of 5 % [4, 7], estimated from inside the run.")
    assert said[-1].endswith("agree within their intervals in the only setup.")


def test_what_is_not_in_the_tables_is_left_out() -> None:
    said = findings(without(PAIR.tables(), "sizes", "checkpoint_cost", "scaling"))
    assert said[COSTS][0].startswith("Chainer, 2 ranks: a checkpoint taken every epoch (10 steps) has an overhead of ")  # fmt: skip
    assert RANKS not in said
    assert not any("weighs" in text or "stall" in text for text in said[COSTS])


def test_repeats_that_differ_are_told_with_each_setup() -> None:
    tables = changed(PAIR.tables(), "overhead", "pytorch", repeats=1)
    chainer, pytorch, *_ = findings(tables)[COSTS]
    assert (chainer[-13:], pytorch[-12:]) == (" (3 repeats).", " (1 repeat).")
    assert "Times are of 1 to 3 repeats of each setup." in page(tables)
    assert "Times are of 3 repeats of each setup." in page(PAIR.tables())


def compared(tables: Tables) -> str:
    """What is said of the shortest and the longest stall of a study on one number of ranks."""
    (text,) = [
        text for text in findings(tables)[COSTS] if "stop" not in text and "estimates" not in text
    ]
    return text


def test_of_two_stalls_the_shorter_is_named_where_the_intervals_are_apart() -> None:
    apart = stalls(PAIR.tables(), chainer=(0.5, 0.4, 0.6), pytorch=(0.3, 0.2, 0.39))
    assert compared(apart) == "PyTorch has a shorter stall than Chainer."


def test_a_difference_within_the_intervals_is_not_told_as_one() -> None:
    within = stalls(PAIR.tables(), chainer=(0.5, 0.4, 0.6), pytorch=(0.3, 0.2, 0.4))
    assert compared(within) == (
        "Which stall is shorter cannot be said, as the intervals of PyTorch and Chainer overlap."
    )


THREE = Study(ranks=(2,), restarts=UNDISTURBED)


def test_of_several_stalls_an_end_is_named_where_its_interval_is_apart_from_all() -> None:
    tables = stalls(THREE.tables(), chainer=(0.5, 0.4, 0.6), pytorch=(0.1, 0.05, 0.2), tensorflow=(0.3, 0.25, 0.35))  # fmt: skip
    assert compared(tables) == "PyTorch has the shortest stall. Chainer has the longest stall."
    tables = stalls(tables, tensorflow=(0.3, 0.15, 0.35))
    assert compared(tables) == (
        "Which stall is the shortest cannot be said, as the intervals of PyTorch and TensorFlow overlap."
        " Chainer has the longest stall."
    )
    tables = stalls(tables, tensorflow=(0.3, 0.15, 0.45))
    assert compared(tables) == (
        "Which stall is the shortest, and which the longest, cannot be said, as their intervals overlap"
        " (PyTorch: 0.10 s [0.05, 0.20] to Chainer: 0.50 s [0.40, 0.60])."
    )


def test_setups_are_compared_with_those_of_as_many_ranks_and_the_same_interval() -> None:
    study = Study(frameworks=("chainer", "pytorch"), intervals=("e1", "s50"), restarts=UNDISTURBED)
    said = [text for text in findings(study.tables())[COSTS] if "cannot be said" in text]
    assert [text.partition(":")[0] for text in said] == [
        "1 rank, every epoch", "1 rank, every 50 steps", "2 ranks, every epoch", "2 ranks, every 50 steps",
    ]  # fmt: skip


def test_what_follows_from_the_model_is_told_once_and_not_with_each_setup() -> None:
    small = Study(models=("small_cnn",), batch_size=8, epochs=4, restarts=UNDISTURBED)
    said = findings(together(small, Study(restarts=UNDISTURBED)))
    heads = [text.partition(": ")[0] for text in said[COSTS] if "cannot be said" in text]
    assert heads == ["ResNet-50, 1 rank", "ResNet-50, 2 ranks", "Small CNN, 1 rank", "Small CNN, 2 ranks"]  # fmt: skip
    assert said[COSTS][0].startswith("Chainer, 1 rank, ResNet-50: ")
    assert said[WHERE][:2] == [
        "Digits.",
        "ResNet-50: batch 32 per rank, 5 epochs; small CNN: batch 8 per rank, 4 epochs.",
    ]


def test_formats_of_one_framework_are_compared_too() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1,), formats_each=2, restarts=UNDISTURBED)
    assert "PyTorch, torch.save; PyTorch, safetensors overlap" in compared(study.tables())


def test_whether_the_two_estimates_agree() -> None:
    tables = overheads(overheads(PAIR.tables(), "chainer", 0.1, 0.05, 0.2), "pytorch", 0.1, 0.05, 0.2)  # fmt: skip
    how = "The two estimates of the overhead, against the baseline and from inside the run, agree within their intervals in "  # fmt: skip
    assert findings(tables)[COSTS][-1] == f"{how}both setups."
    apart = {"agree": False, "in_run": 0.3, "in_run_lo": 0.25, "in_run_hi": 0.35}
    assert findings(changed(tables, "overhead", "pytorch", **apart))[COSTS][-1] == (
        f"{how}1 of 2 setups. They do not for PyTorch, 2 ranks, every epoch (10 % [5, 20] against"
        " 30 % [25, 35]): do not quote these without finding out why."
    )


def test_notes_of_the_table_are_pointed_at() -> None:
    tables = changed(PAIR.tables(), "overhead", "pytorch", note="1 of 3 repeats have no baseline")
    said = "The table overhead has a note on {}. Read it before you quote."
    assert findings(tables)[COSTS][-1] == said.format("1 of 2 setups")
    tables = changed(tables, "overhead", "chainer", note="another")
    assert findings(tables)[COSTS][-1] == said.format("both setups")


def test_more_ranks_are_told_from_the_fewest_to_the_most() -> None:
    study = Study(frameworks=("pytorch",), ranks=(1, 2, 4), restarts=UNDISTURBED)
    assert findings(study.tables())[RANKS] == [
        "PyTorch: 160 images/s [154, 165] on 1 rank and 540 images/s [520, 560] on 4 ranks,"
        " which is 85 % [82, 87] of ideal scaling."
    ]


def test_ranks_that_share_cores_are_told_what_these_allow() -> None:
    study = Study(frameworks=("pytorch",), shared_cores=True, restarts=UNDISTURBED)
    (said,) = findings(study.tables())[RANKS]
    assert said.endswith(" of ideal scaling. The cores that the ranks share allow 50 %.")


def test_one_number_of_ranks_says_nothing_of_scaling() -> None:
    assert RANKS not in findings(PAIR.tables())


def test_restarts_that_gave_the_same_bits_are_counted() -> None:
    study = Study(frameworks=("chainer", "pytorch", "tensorflow"), deterministic=(True, False), repeats=1)  # fmt: skip
    assert findings(study.tables())[RESTARTS] == [
        "Deterministic mode: all 36 runs that were killed and restarted gave the same bits as the uninterrupted run.",
        "Deterministic mode: all 6 second runs of the same seed gave the same bits as the uninterrupted run.",
        "Default mode: 24 of 36 runs that were killed and restarted gave the same bits as the uninterrupted run."
        " Others came from TensorFlow (12 of 12).",
        "Default mode: 4 of 6 second runs of the same seed gave the same bits as the uninterrupted run."
        " Others came from TensorFlow (2 of 2).",
        "48 restarts left out a part of the state on purpose. The comparison noticed all.",
    ]  # fmt: skip


ALONE = {"ranks": (1,), "repeats": 1}


def test_a_single_restart_is_told_in_the_singular() -> None:
    once = Restarts(histories=("killed_between",), caches=("warm",), controls=False)
    equal = Study(frameworks=("pytorch",), restarts=once, **ALONE)  # type: ignore[arg-type]
    other = Study(frameworks=("tensorflow",), restarts=once, **ALONE)  # type: ignore[arg-type]
    assert findings(equal.tables())[RESTARTS] == [
        "Default mode: the only run that was killed and restarted gave the same bits as the uninterrupted run."
    ]
    assert findings(other.tables())[RESTARTS] == [
        "Default mode: the only run that was killed and restarted gave other bits than the uninterrupted run."
    ]


def test_a_control_that_was_missed_is_named() -> None:
    missed = Restarts(histories=(), missed=frozenset({("pytorch", "momentum")}))
    study = Study(frameworks=("pytorch",), restarts=missed, **ALONE)  # type: ignore[arg-type]
    assert findings(study.tables())[RESTARTS] == [
        "3 restarts left out a part of the state on purpose. The comparison noticed 2 of them, not PyTorch without momentum."
    ]


def test_the_cost_of_deterministic_mode_is_told_where_its_interval_shows_it() -> None:
    study = Study(ranks=(1,), restarts=UNDISTURBED)
    tables = changed(study.tables(), "determinism_cost", "tensorflow", cost=-0.1, cost_lo=-0.15, cost_hi=-0.05)  # fmt: skip
    assert findings(tables)[MODE] == [
        "Deterministic mode makes training longer (PyTorch, 1 rank: 11 % [8, 14]).",
        "Deterministic mode makes training shorter (TensorFlow, 1 rank: -10 % [-15, -5]).",
        "No cost of deterministic mode is shown where the interval contains zero (Chainer, 1 rank: 2 % [-1, 5]).",
    ]


def test_restore_times_are_medians_with_their_load() -> None:
    killed = Restarts(histories=("killed_between",), controls=False, cold_shown={"pytorch": False})
    study = Study(frameworks=("pytorch",), ranks=(1,), restarts=killed)
    assert findings(study.tables())[RESTORE] == [
        "PyTorch, 1 rank, warm: a restart takes 4.9 s, 0.51 s of it to load the checkpoint (medians of 3 restarts).",
        "PyTorch, 1 rank, cold: a restart takes 5.9 s, 1.5 s of it to load the checkpoint (medians of 3 restarts)."
        " The kernel's counters do not show that every such load was cold.",
    ]


def test_where_it_was_measured_is_told_last() -> None:
    *_, (heading, said) = findings(PAIR.tables()).items()
    assert heading == WHERE
    assert said == [
        "ResNet-50, digits, batch 32 per rank, 5 epochs.",
        "Measured on CPU (AMD EPYC 7B13, 2 cores, ext4), 2026-01-02, 3 repeats. Host: node1.",
        MEASURED,
    ]


def test_cpu_and_gpu_are_told_apart_and_never_compared() -> None:
    both = Study(frameworks=("pytorch",), ranks=(1,), hardware=("cpu", "gpu"), restarts=UNDISTURBED)
    said = findings(both.tables())
    assert [text.partition(":")[0] for text in said[COSTS][:2]] == ["PyTorch, 1 rank, CPU", "PyTorch, 1 rank, GPU"]  # fmt: skip
    assert not any("stall" in text for text in said[COSTS])
    assert "GPU Tesla V100-SXM2-16GB" in said[WHERE][1]


PROVEN = Study(frameworks=("chainer", "pytorch"), ranks=(2,), restarts=UNDISTURBED, proven=True)


def test_of_each_strategy_one_sentence_says_whether_its_versions_are_the_states_of_their_steps() -> (
    None
):
    tables = changed(PROVEN.tables(), "consistency", "pytorch", strategy="dcp_async")
    assert findings(tables)[VERSIONS] == [
        "Strategy dcp async: all 6 compared versions are bit for bit the state of the step that it claims.",
        "Strategy native: all 6 compared versions are bit for bit the state of the step that it claims.",
    ]


def test_torn_versions_are_told_with_their_framework_and_tensors() -> None:
    torn = {"whole": 1, "torn": 1, "consistent": False, "first_torn_step": 6}
    named = {"torn_groups": "weights, statistics", "torn_names": "model/fc.bias, model/fc.kernel"}
    tables = changed(PROVEN.tables(), "consistency", "pytorch", **torn, **named)
    assert findings(tables)[VERSIONS] == [
        "Strategy native: 3 of 12 compared versions are torn, with tensors of another step than the one claimed:"
        " PyTorch (weights and statistics, first at step 6: model/fc.bias)."
    ]


def test_versions_that_were_not_compared_are_not_spoken_of() -> None:
    unknown = {"versions_compared": 0, "whole": 0, "consistent": None}
    tables = changed(PROVEN.tables(), "consistency", "pytorch", **unknown)
    tables = changed(tables, "consistency", "chainer", **unknown)
    assert VERSIONS not in findings(tables)
    assert VERSIONS not in findings(PAIR.tables())


def one_repeat() -> Tables:
    tables = Study(repeats=1, restarts=UNDISTURBED).tables()
    for name in ("overhead", "checkpoint_cost", "scaling"):
        ends = [column for column in tables[name] if str(column).endswith(("_lo", "_hi"))]
        tables[name] = tables[name].assign(**dict.fromkeys(ends, math.nan))
    tables["overhead"]["agree"] = pd.array([None] * len(tables["overhead"]), "boolean")
    return tables


def test_of_one_repeat_the_intervals_of_the_decision_are_said_to_be_of_the_rate() -> None:
    once = one_repeat()
    timed = {name: once[name] for name in ("overhead", "checkpoint_cost", "scaling", "determinism_cost")}  # fmt: skip
    text = " ".join(page({**decided("measured"), **timed}).split())
    assert f"{NO_INTERVALS}. {OF_RATE}." in text


def test_of_one_repeat_no_interval_and_no_order_is_told() -> None:
    tables = one_repeat()
    text = " ".join(page(tables).split())
    assert f"{NO_INTERVALS}." in text
    assert OF_RATE not in text
    said = findings(tables)
    every = [text for texts in said.values() for text in texts]
    assert not any("[" in text or "zero" in text for text in every)
    assert not any("stall" in text or "estimates" in text for text in said[COSTS])
    assert all(text.startswith("Without a second repeat it is not known ") for text in said[MODE])


def test_a_study_of_baselines_says_that_it_has_no_checkpoints() -> None:
    tables = without(PAIR.tables(), "overhead", "checkpoint_cost", "sizes", "determinism_cost")
    said = findings(tables)
    assert list(said) == [COSTS, WHERE]
    assert said[COSTS] == ["No setup with checkpoints was timed: there is no cost of a checkpoint."]


def test_a_study_of_which_nothing_ran_says_so() -> None:
    assert page(empty_tables()).splitlines()[-1] == "Nothing was measured yet."


def test_a_large_study_names_the_tables_that_have_the_rest() -> None:
    large = Study(models=("resnet50", "vgg16"), ranks=(1, 2, 4, 8), formats_each=2)
    said = findings(large.tables())
    counts = {heading: len(texts) for heading, texts in said.items()}
    assert counts[RESTORE] == MOST_SENTENCES + 1
    assert said[COSTS][MOST_SENTENCES] == "36 more are in the table overhead."


EVERY_KIND = {
    "default": lambda: Study().tables(),
    "both modes": lambda: Study(deterministic=(True, False), formats_each=2).tables(),
    "one repeat": one_repeat,
    "two models": lambda: together(Study(models=("small_cnn",), batch_size=8, epochs=4), Study()),
    "proven": PROVEN.tables,
    "nothing": empty_tables,
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_page_is_good_restructured_text(kind: str, tmp_path: Path) -> None:
    text = page(EVERY_KIND[kind]())
    tree = publish_doctree(text, settings_overrides={"report_level": 1, "halt_level": 5})
    assert not list(tree.findall(system_message))
    assert len(list(tree.findall(list_item))) == text.count("\n- ")
    assert "nan" not in text.lower().split()
    assert max(map(len, text.splitlines())) <= 100


def test_what_restructured_text_would_take_for_markup_is_escaped() -> None:
    tables = PAIR.tables()
    tables["provenance"] = tables["provenance"].assign(host="node_*1_", cpu="EPYC |x| `y` \\z")
    tree = publish_doctree(page(tables), settings_overrides={"report_level": 1})
    assert not list(tree.findall(system_message))
    assert "Host: node_*1_." in tree.astext()
    assert "EPYC |x| `y` \\z" in tree.astext().replace("\n", " ")


def test_the_page_is_made_from_the_tables_that_its_rule_gives_it() -> None:
    tables = Study().tables()
    assert page({name: tables[name] for name in TABLES}) == page(tables)


def test_what_a_failure_costs_is_told_with_its_largest_parts_and_the_goodput() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), struck=("exponential_mean_s_60",))
    (sentence,) = findings(study.tables())["What failures cost"]
    assert sentence.startswith(
        "PyTorch, 2 ranks: 6 failures cost 7.8 s each (the rest 15 %, slower steps 14 %, "
        "work done again 13 %); at 62 failures an hour 87 % ["
    )
    assert sentence.endswith("] of the time was useful.")


def test_a_single_failure_is_told_in_the_singular() -> None:
    study = Study(frameworks=("pytorch",), ranks=(2,), struck=("exponential_mean_s_60",))
    tables = study.tables()
    tables["goodput"][["failures", "repeats"]] = [[1.0, 1]]
    (sentence,) = findings(tables)["What failures cost"]
    assert ": 1 failure cost 16 s (" in sentence


def test_a_study_without_failures_says_nothing_of_them() -> None:
    assert "What failures cost" not in findings(Study().tables())
