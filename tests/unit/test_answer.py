"""The screen at the end of a study: 30 lines that say what its tables say, and no more."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from decision_tables import decided
from figure_tables import Study, empty_tables

from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.store import write_tables
from ckptbench.decide.inputs import UNKNOWN_SLOWDOWN
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.report.answer.quantities import amount, percent, plain
from ckptbench.report.answer.screen import MOST_LINES, Line, Screen, text
from ckptbench.report.answer.study import NOTHING, screen, shown, study_text

Tables = dict[str, pd.DataFrame]


def words(tables: Tables) -> str:
    """The screen as one line: where a sentence is broken tells nothing."""
    return " ".join(study_text(tables).split())


def changed(tables: Tables, name: str, **values: Any) -> Tables:
    """The tables, with these values in the first row of one."""
    rows = tables[name].copy()
    for column, value in values.items():
        rows.loc[rows.index[0], column] = value
    return {**tables, name: rows}


def cells(tables: Tables) -> list[tuple[str, ...]]:
    return [line.cells for line in screen(tables).lines]


def test_a_row_says_what_the_tables_say() -> None:
    tables = decided("measured")
    row, first = shown(tables).iloc[0], cells(tables)[0]
    assert (row["gpus"], row["is_best"]) == (2, True)
    gpus, name, every, loses, fine, in_use, saved, stops = first
    assert (gpus, name.removesuffix(" +")) == ("2", "deepfreeze, ulfm")
    assert every == amount(
        row["best_minutes"], lo=row["best_minutes_lo"], hi=row["best_minutes_hi"]
    )
    assert "[" in every
    assert loses == percent(1 - row["goodput"])
    assert fine == f"{plain(row['fine_from_minutes'])} - {plain(row['fine_to_minutes'])}"
    assert in_use == percent(1 - row["goodput_in_use"])
    assert saved == plain(24 * 2 * (row["goodput"] - row["goodput_in_use"]))
    assert stops == "2.0 s"
    assert row["stall_s"] == 2
    said = study_text(tables)
    assert all(cell in said for cell in first)


def narrow() -> Tables:
    """Tables whose intervals all tell their numbers."""
    tables = decided("measured")
    for column in ("best_minutes", "goodput", "goodput_in_use"):
        value = tables["advice"][column]
        lost = value if column == "best_minutes" else 1 - value
        ends = (0.9 * lost, 1.1 * lost) if column == "best_minutes" else (1 - 1.1 * lost, 1 - 0.9 * lost)  # fmt: skip
        tables["advice"][f"{column}_lo"], tables["advice"][f"{column}_hi"] = ends
    return tables


def test_every_strategy_is_a_row_and_the_best_one_comes_first() -> None:
    rows = shown(decided("measured"))
    assert (rows.groupby("gpus").size() == 4).all(), "two strategies with two recoveries"
    assert rows.groupby("gpus")["goodput"].apply(lambda own: own.is_monotonic_decreasing).all()
    assert len(screen(decided("measured")).lines) == len(rows)


def test_a_projected_checkpoint_costs_what_it_does_there() -> None:
    tables = decided("measured")
    rows = tables["decision_costs"]
    rows["growth"] = json.dumps({"fit": {"stall_s": [0.0, 0.0, 1.0]}})
    tables["advice"].loc[tables["advice"]["projected"], "projection"] = "fit"
    told = shown(tables).set_index(["gpus", "strategy", "recovery"])["stall_s"]
    assert told[1024, "deepfreeze", "ulfm"] == pytest.approx(512 * told[2, "deepfreeze", "ulfm"])
    assert "*: projected. Checkpoints and restarts follow a fit" in words(tables)


def test_what_is_projected_is_projected_from_the_most_ranks() -> None:
    rows = shown(decided("several"))
    assert set(rows[rows["framework"] == "pytorch"].query("projected")["ranks"]) == {2}
    assert set(rows[~rows["projected"]]["ranks"]) == {1, 2}


def test_the_best_setup_of_every_training_comes_before_another_of_the_same() -> None:
    tables = decided("trainings")
    first = [line for line in screen(tables).lines if line.importance[0] == 0]
    assert len(first) == 2 * tables["advice"]["gpus"].nunique()
    assert sum("GPT-2" in line.cells[1] for line in first) == len(first) // 2


def test_ranks_that_shared_cores_are_said_to_be_left_out() -> None:
    tables = settled()
    assert "Left out" not in words(tables)
    crowded = tables["overhead"].iloc[:1].assign(ranks=tables["provenance"]["cores"].max() + 1)
    tables["overhead"] = pd.concat([tables["overhead"], crowded])
    assert re.search(r"Left out: \d+ ranks, which shared \d+ cores\.", words(tables))


def test_of_each_strategy_the_interval_that_counts_has_a_row() -> None:
    rows = shown(decided("two intervals"))
    assert "s7" not in set(rows["interval"])


def test_more_rows_than_fit_leave_the_best_ones_and_say_where_the_others_lie() -> None:
    lines = tuple(Line((str(gpus), f"setup {place}"), (place, -gpus)) for gpus in (2, 8) for place in range(20))  # fmt: skip
    said = text(Screen(title="Title", heads=("GPUs", "setup"), lines=lines, rest="advice.csv"))
    shown_lines = said.splitlines()
    assert len(shown_lines) == MOST_LINES
    assert shown_lines[-1] == f"{40 - 26} more rows are in advice.csv."
    assert [line for line in shown_lines if line.endswith(("setup 12", "setup 13"))] == ["2     setup 12", "8     setup 12"]  # fmt: skip
    assert shown_lines[3:5] == ["2     setup 0", "2     setup 1"]


def test_some_rows_stand_however_much_there_is_to_say() -> None:
    lines = tuple(Line((str(place), "setup")) for place in range(9))
    remarks = tuple(f"Remark {place}." for place in range(40))
    said = text(Screen(title="Title", heads=("GPUs", "setup"), lines=lines, rest="advice.csv", remarks=remarks, ending=("End.",)))  # fmt: skip
    shown_lines = said.splitlines()
    assert len(shown_lines) == MOST_LINES
    assert sum(line.endswith("setup") for line in shown_lines) == 1 + 3
    assert shown_lines[-1] == "End."
    assert "Remark 0." in shown_lines


def test_no_line_is_longer_than_a_terminal() -> None:
    lines = text(
        Screen(title=" ".join(["ab"] * 60), remarks=(" ".join(["abc"] * 60),))
    ).splitlines()
    assert 97 <= max(map(len, lines)) <= 100


def test_a_best_setup_is_called_so_only_where_it_is_shown_to_be() -> None:
    tables = decided("measured")
    assert "ulfm +" in study_text(tables)
    tables["advice"]["p_strictly_best"] = 0.951
    assert "ulfm +" in study_text(tables)
    tables["advice"]["p_strictly_best"] = 0.949
    assert "ulfm +" not in study_text(tables)


def test_what_is_projected_is_marked_and_explained() -> None:
    tables = decided("several")
    said = study_text(tables)
    assert {own[0] for own in cells(tables)} == {"1", "2", "1,024*", "131,072*"}
    assert (
        "*: projected. A step, a checkpoint and a restart are taken to cost what they do on fewer GPUs."
        in said
    )
    assert "GPU-h/day" in said
    tables["advice"] = tables["advice"][~tables["advice"]["projected"]]
    assert "projected" not in study_text(tables)
    assert "rank-h/day" in study_text(tables), "processes on CPU are no GPUs"


def test_an_interval_that_spans_more_than_tenfold_stands_beside_its_number() -> None:
    tables = narrow()
    advice = tables["advice"]
    advice["best_minutes_lo"] = advice["best_minutes_hi"] / 9.9
    assert "spans more than ten-fold" not in words(tables)
    advice["best_minutes_lo"] = advice["best_minutes_hi"] / 10.1
    for own, row in zip(cells(tables), records(shown(tables)), strict=True):
        assert "[" in own[2]
        assert own[6].lstrip("-")[0].isdigit()
        assert (" - " in own[4]) is (row["goodput"] >= 0.5)
    assert "spans more than ten-fold" in words(tables)


def test_a_loss_and_a_stall_that_span_more_than_tenfold_have_their_interval() -> None:
    tables = narrow()
    assert not any("[" in own[3] + own[5] + own[7] for own in cells(tables))
    tables["advice"]["goodput_lo"] = 0.0
    tables["decision_costs"]["stall_s_lo"], tables["decision_costs"]["stall_s_hi"] = 0.1, 1.1
    told = cells(tables)
    assert " %\n[" in told[0][3]
    assert "spans more than ten-fold" in words(tables)
    assert told[0][6][0].isdigit(), "what is saved is computed too"
    assert all("\n[0.1" in own[7] for own in told)


def test_of_no_failure_nothing_is_firm() -> None:
    tables = decided("measured")
    tables["failure_rates"]["failures"] = 0
    assert [head for head in screen(tables).heads if "at " in head] == ["every\nat least, min", "loses\nat most", "500 steps lose\nat most"]  # fmt: skip
    assert all(own[4] == "-" and own[6].startswith("at ") for own in cells(tables))
    assert not any(own[1].endswith(" +") for own in cells(tables))
    assert "No failure was seen: the best interval is this or longer" in words(tables)


def test_where_next_to_nothing_gets_done_no_interval_is_recommended() -> None:
    tables = decided("measured")
    tables["advice"][["goodput", "goodput_lo", "goodput_hi"]] = 0.0101
    assert "none helps" not in words(tables)
    tables["advice"][["goodput", "goodput_lo", "goodput_hi"]] = 0.0099
    assert "none helps" in words(tables)


def test_the_mark_of_the_best_is_explained_where_it_stands() -> None:
    tables = decided("measured")
    tables["advice"]["p_strictly_best"] = 0.96
    assert "+: shown to lose the least" in words(tables)
    tables["advice"]["p_strictly_best"] = 0.94
    assert "shown to lose the least" not in words(tables)


def test_a_published_rate_says_that_the_reader_s_may_differ() -> None:
    tables = decided("measured")
    row = shown(tables).query("gpus == 131072").iloc[0]
    said = words(tables)
    assert (
        "Failures as published of Llama 3 405B, 16,384 H100: one in 23 min on 131,072 GPUs." in said
    )
    fewer, more = (f"{plain(row[f'best_minutes_{name}'])} min, {percent(1 - row[f'goodput_{name}'])} lost" for name in ("rarer", "oftener"))  # fmt: skip
    assert f"A third as many: {fewer}; three times as many: {more} (deepfreeze, ulfm)." in said
    tables["failure_rates"]["source"] = "own"
    assert "published" not in words(tables)
    assert "three times" not in words(tables)
    tables["failure_rates"]["failures"] = None
    said = words(tables)
    assert "Failures as in Llama 3 405B, 16,384 H100: one in 23 min on 131,072 GPUs, not counted:" in said  # fmt: skip
    assert f"A third as many: {fewer}; three times as many: {more} (deepfreeze, ulfm)." in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stall_s_lo": math.nan, "stall_s_hi": math.nan}, "measured once and have no interval"),
        ({"note": UNKNOWN_SLOWDOWN}, "Slower steps during a save are taken as none"),
        ({"slower": 1.25, "slower_lo": 1.1, "slower_hi": 1.4}, "up to 1.25 times [1.10, 1.40] as long with"),
    ],
)  # fmt: skip
def test_it_says_what_to_know_of_the_costs(changes: dict[str, Any], expected: str) -> None:
    tables = decided("measured")
    costs = tables["decision_costs"].assign(durable_s_lo=50.0, step_s_lo=2.0)
    assert expected not in words({**tables, "decision_costs": costs})
    assert expected in words({**tables, "decision_costs": costs.assign(**changes)})


def test_steps_that_a_strategy_slows_down_everywhere_are_said_to_count() -> None:
    tables = decided("measured")
    costs = tables["decision_costs"].copy()
    slow = costs["strategy"] == "deepfreeze"
    costs.loc[slow, [f"slower_everywhere{end}" for end in ("", "_lo", "_hi")]] = 1.5, 1.45, 1.55
    told = "Every step takes up to 1.50 times [1.45, 1.55] as long with deepfreeze: counted."
    assert told not in words(tables)
    assert told in words({**tables, "decision_costs": costs})


@pytest.mark.parametrize(("hi", "is_said"), [(1.051, True), (1.049, False)])
def test_a_step_that_may_take_a_twentieth_longer_is_told(hi: float, is_said: bool) -> None:
    tables = decided("measured")
    slower = {"slower": 1.0, "slower_lo": 0.9, "slower_hi": hi}
    costs = tables["decision_costs"].assign(**slower)
    assert ("a step takes up to" in words({**tables, "decision_costs": costs})) == is_said


def test_a_rate_without_failures_is_said_to_be_a_bound() -> None:
    tables = decided("measured")
    assert "at most one in" not in words(tables)
    tables["failure_rates"]["failures"] = 0
    assert ": at most one in" in words(tables)


def test_a_long_title_of_a_rate_is_cut() -> None:
    tables = decided("measured")
    tables["failure_rates"]["title"] = 59 * "x" + "abc"
    assert f"{59 * 'x'}a: one in" in words(tables)


def test_a_restart_that_was_not_measured_is_said_to_be_taken() -> None:
    assert "No restart was measured: taken as a start and a load" in words(decided("measured"))
    assert "No restart was measured" not in words(decided("given"))


def test_what_survivors_rest_on_is_said() -> None:
    assert "Survivors go on from 77 % of failures (77 % hit one node alone)." in words(decided("measured"))  # fmt: skip
    tables = decided("measured")
    surviving = tables["decision_costs"]["survived"] > 0
    tables["decision_costs"].loc[surviving, ["survived", "survived_of"]] = [0.5, 4]
    assert re.search(r"hit one node alone, \d+ of \d+ kills here\)", words(tables))


def test_costs_that_a_user_gives_need_no_table_of_a_study() -> None:
    tables = {name: decided("given")[name] for name in DECISION}
    said = study_text(tables)
    assert said.startswith("How often to checkpoint: ")
    assert "quote" not in said
    assert "GPUs" in said


def test_where_there_is_nothing_to_decide_the_measurement_is_told_alone() -> None:
    said = words({**settled(), **{name: decided("empty")[name] for name in DECISION}})
    assert NOTHING in said
    assert "Fit to quote" in said
    assert "Measured on CPU" in said


def test_a_study_of_which_nothing_ran_says_so() -> None:
    assert words(empty_tables()) == f"How often to checkpoint {NOTHING}"


# ---- the verdict on the measurement


QUIET = {**Study().tables(), **{name: decided("measured")[name] for name in DECISION}}


def settled(**values: Any) -> Tables:
    """A study that nothing speaks against, but for these values of its first overhead."""
    overhead = QUIET["overhead"].assign(
        agree=True, paired_lo=0.01, overhead_lo=0.01, overhead_hi=0.2
    )
    return changed({**QUIET, "overhead": overhead}, "overhead", **values)


def test_a_measurement_that_nothing_speaks_against_is_fit_to_quote() -> None:
    second = study_text(settled()).splitlines()[1]
    assert second.startswith("Fit to quote: no other program disturbed its ")


def disturbed(number: int, others: float, stolen: float) -> Tables:
    tables = settled()
    machine = tables["machine"].copy()
    machine.loc[machine.index[:number], ["disturbed", "others", "stolen"]] = [True, others, stolen]
    return {**tables, "machine": machine}


def test_disturbed_runs_are_the_first_thing_that_is_said() -> None:
    tables = disturbed(26, 0.3, 0.0)
    runs = len(tables["machine"])
    second = study_text(tables).splitlines()[1]
    assert second == f"Do not quote: other programs disturbed 26 of {runs} runs (table machine)."
    assert "Fit to quote" not in study_text(tables)
    assert "Do not quote: the host of this machine disturbed 3 of" in words(disturbed(3, 0.0, 0.2))  # fmt: skip


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"agree": False},
            "The overhead of 1 of 6 setups is the paired one: from inside the run it differs",
        ),
        ({"paired": math.nan}, "No baseline ran beside 1 of 6 setups"),
        ({"overhead_lo": -0.1}, "What checkpoints cost cannot be told of 1 of 6 setups"),
        ({"accelerator": "cuda"}, "Not what was asked for: 1 of 6 setups ran on CPU (cuda asked)."),
    ],
)
def test_what_speaks_against_quoting_an_overhead_is_said(values: dict[str, Any], said: str) -> None:
    assert said not in words(settled())
    told = words(settled(**values))
    assert said in told
    assert "Fit to quote" not in told


def test_without_repeats_no_number_has_an_interval_and_that_is_said() -> None:
    tables = settled()
    tables["overhead"] = tables["overhead"].assign(overhead_lo=math.nan, overhead_hi=math.nan)
    assert "No setup ran twice: nothing shows how far two runs differ" in words(tables)


def test_resumed_runs_and_studies_of_baselines_are_told() -> None:
    tables = changed(settled(), "provenance", continued=2)
    assert "2 runs went on after an interruption: not timed." in words(tables)
    without = {**settled(), "overhead": QUIET["overhead"].iloc[:0]}
    assert "No setup with checkpoints was timed" in words(without)


def test_torn_versions_are_told_with_their_strategy() -> None:
    tables = {**settled(), "consistency": Study(proven=True).tables()["consistency"]}
    assert "torn" not in words(tables)
    torn = words(changed(tables, "consistency", torn=2))
    assert re.search(r"Do not use native with Chainer: 2 of \d+ versions are torn", torn)


def test_restarts_are_told_where_bits_differ_and_where_controls_missed_something() -> None:
    proof = Study(deterministic=(True, False)).tables()["resume_proof"]
    tables = {**settled(), "resume_proof": proof}
    assert re.search(r"\d+ of \d+ in deterministic mode; \d+ of \d+ in default mode, not TensorFlow", words(tables))  # fmt: skip
    controls = int((proof["omit"] != "nothing").sum())
    assert f"; controls caught: {controls} of {controls}." in words(tables)
    exact = proof.index[proof["deterministic"] & (proof["omit"] == "nothing")][0]
    control = proof.index[proof["omit"] != "nothing"][0]
    worse = proof.copy()
    worse.loc[exact, "bit_equal"] = False
    worse.loc[control, "caught"] = False
    said = words({**tables, "resume_proof": worse})
    assert re.search(r"Do not trust restarts: in deterministic mode 1 of \d+ runs ended with other bits", said)  # fmt: skip
    assert "Do not trust the comparison of bits: it missed 1 of " in said
    assert f"; controls caught: {controls - 1} of {controls}." in said


def test_training_that_failures_changed_is_told() -> None:
    goodput = Study(struck=("exponential mean_s=60",)).tables()["goodput"]
    tables = {**settled(), "goodput": goodput}
    assert "Failures changed" not in words(tables)
    said = words(changed(tables, "goodput", kept=False))
    assert "Failures changed what training came out with, in 1 of 6 setups (restart; table goodput)." in said  # fmt: skip


def test_the_range_of_overheads_names_their_setups() -> None:
    assert re.search(r"Measured overhead: [\d.]+ % \[.*\] \(.*, [12] ranks?\) to [\d.]+ % \[", words(settled()))  # fmt: skip


# ---- its size


EVERY_KIND = {
    "default": settled,
    "all that can be wrong": lambda: {
        **disturbed(5, 0.3, 0.2),
        **{name: Study(deterministic=(True, False), proven=True, struck=("exponential mean_s=60",)).tables()[name] for name in ("resume_proof", "consistency", "goodput")},
        **{name: decided("several")[name] for name in DECISION},
    },
    "measured": lambda: decided("measured"),
    "several": lambda: decided("several"),
    "given": lambda: {name: decided("given")[name] for name in DECISION},
    "nothing": empty_tables,
}  # fmt: skip


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_it_fits_on_one_screen(kind: str) -> None:
    lines = study_text(EVERY_KIND[kind]()).splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100
    assert "nan" not in " ".join(lines).lower().split()
    asked = "ckptbench decide" + ("" if kind == "given" else " --study results/tables")
    assert (asked in lines[-1]) == (kind != "nothing")


def test_the_verb_writes_it_from_tables_alone(tmp_path: Path) -> None:
    tables = settled()
    write_tables(tmp_path / "tables", {name: tables[name] for name in (*DECISION, *STUDY_TABLES)})
    written = tmp_path / "new" / "answer.txt"
    command = [sys.executable, "-m", "ckptbench.workflow", "write-answer", "--tables", tmp_path / "tables", "--output", written]  # fmt: skip
    subprocess.run(command, check=True)
    assert written.read_text() == study_text(tables, str(tmp_path / "tables"))
