"""The screen at the end of a study: 30 lines that say what its tables say, and no more."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from decision_tables import decided
from figure_tables import Study, empty_tables

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.store import write_tables
from ckptbench.decide.inputs import UNKNOWN_SLOWDOWN
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.layout import Block, Kind, filled, table
from ckptbench.report.answer.quantities import Quantity, percent, plain
from ckptbench.report.answer.screen import MOST_LINES, Line, Screen, printed, text
from ckptbench.report.answer.study import NOTHING, screen, shown, study_text

Tables = dict[str, pd.DataFrame]


def words(tables: Tables) -> str:
    """All that it has to say, as one line: where a sentence is broken tells nothing."""
    return " ".join(" ".join(line.text for line in printed(screen(tables), explain=True)).split())


def changed(tables: Tables, name: str, **values: Any) -> Tables:
    """The tables, with these values in the first row of one."""
    rows = tables[name].copy()
    for column, value in values.items():
        rows.loc[rows.index[0], column] = value
    return {**tables, name: rows}


def titled(tables: Tables) -> Iterator[tuple[str, ...]]:
    """The table as a page has it, with a block's title in all of its rows: it stands in the first one."""
    title = ""
    for line in screen(tables).lines:
        title = line.cells[0] or title
        yield (title, *line.cells[1:])


def cells(tables: Tables) -> list[tuple[str, ...]]:
    """Without the rows of intervals in use."""
    return [row for row in titled(tables) if not row[1].startswith("now")]


def in_use(tables: Tables) -> list[tuple[str, ...]]:
    return [row for row in titled(tables) if row[1].startswith("now")]


def two_digits(value: float, lo: float, hi: float, unit: str) -> str:
    return f"{plain(value)} {unit} [{plain(lo)}, {plain(hi)}]"


def test_a_row_says_what_the_tables_say() -> None:
    tables = narrow()
    row, (title, name, every, loses, saves, fine) = (
        shown(tables).query("gpus == 1024").iloc[0],
        cells(tables)[4],
    )
    assert (row["gpus"], row["is_best"]) == (1024, True)
    assert (
        title
        == "ulfm, 1,024 GPUs, projected: saves stop for 2.0 s and slow steps by 4.0 s (deepfreeze), 60 s (native)"
    )
    assert name == "deepfreeze"
    assert every == two_digits(*(row[f"best_minutes{end}"] for end in ("", "_lo", "_hi")), "min")
    assert loses == two_digits(*(100 * (1 - row[f"goodput{end}"]) for end in ("", "_hi", "_lo")), "%")  # fmt: skip
    assert fine == f"{plain(row['fine_from_minutes'])} - {plain(row['fine_to_minutes'])} min"
    saved = 24 * 1024 * (row["goodput"] - row["goodput_in_use"])
    ends = (plain(row[f"saved_gpu_hours{end}"]) for end in ("_lo", "_hi"))
    assert saves == f"saves {plain(saved)} [{', '.join(ends)}]"
    _, _, (_, now, steps, loses_now, *_), *_ = in_use(tables)
    assert (now, steps) == ("now (native)", "21 min")
    assert loses_now.startswith(percent(1 - row["goodput_in_use"]))


def test_all_setups_of_a_block_are_compared_with_its_first_strategy_at_its_interval() -> None:
    """As on a page that is filled with the study: with one loss of today, not each with itself."""
    rows = shown(decided("several"))
    for _, block in rows.groupby([*SYSTEM, "gpus", "recovery"]):
        (today,) = {*block["goodput_in_use"]}
        assert {*block["now_label"]} == {"native"}
        saved = 24 * block["gpus"] * (block["goodput"] - today)
        assert list(block["saved_gpu_hours"]) == pytest.approx(list(saved))
        own = block[block["strategy"] == "native"].iloc[0]
        advised = decided("several")["advice"].set_index(["framework", "ranks", "gpus", "recovery", "strategy", "rate"])  # fmt: skip
        key = (own["framework"], own["ranks"], own["gpus"], own["recovery"], "native", own["rate"])
        assert advised["goodput_in_use"][key] == today


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
    assert len(cells(decided("measured"))) == len(rows)


def test_a_projected_checkpoint_costs_what_it_does_there() -> None:
    tables = decided("measured")
    rows = tables["decision_costs"]
    rows["growth"] = json.dumps({"fit": {"stall_s": [0.0, 0.0, 1.0]}})
    tables["advice"].loc[tables["advice"]["projected"], "projection"] = "fit"
    told = shown(tables).set_index(["gpus", "strategy", "recovery"])["stall_s"]
    assert told[1024, "deepfreeze", "ulfm"] == pytest.approx(512 * told[2, "deepfreeze", "ulfm"])
    assert "Projected: checkpoints and restarts follow a fit" in words(tables)


def test_intervals_of_all_blocks_have_one_unit_unless_they_are_far_apart() -> None:
    def shown(*minutes: float) -> list[str]:
        blocks = [
            Block(choices=(Choice(name="native", steps=Quantity(10), interval_s=Quantity(60 * each), loses=Quantity(0.1)),), title=f"{each}")
            for each in minutes
        ]  # fmt: skip
        return [
            line.text.split("  ")[1].strip()
            for line in table(blocks, 80)
            if line.kind is not Kind.TITLE
        ]

    assert shown(60, 240) == ["60 min", "240 min"]
    assert shown(60, 1000) == ["1.0 h", "17 h"], "by all of them"
    assert shown(0.5, 400) == ["30 s", "6.7 h"]


def test_no_number_is_broken_from_what_it_counts() -> None:
    for kept in ("MTBF 14 h", "MTBF at least 14 h", "21 - 76 min", "1,024 GPUs"):
        assert filled(f"{'x' * 72} {kept}", 80)[-1] == f"  {kept}"


def test_what_is_projected_is_projected_from_the_most_ranks() -> None:
    rows = shown(decided("several"))
    assert set(rows[rows["framework"] == "pytorch"].query("projected")["ranks"]) == {2}
    assert set(rows[~rows["projected"]]["ranks"]) == {1, 2}


def test_the_first_row_of_a_block_comes_before_the_second_of_another() -> None:
    """And those of the most GPUs before others."""
    whole = replace(screen(decided("trainings")), rest="index.html")
    text = printed(whole)
    assert len(text) <= MOST_LINES
    shown_titles = [line.text for line in text if "projected" in line.text]
    assert len(shown_titles) >= 3
    assert all("131,072 GPUs" in title for title in shown_titles)
    assert sum(line.text.startswith("now") for line in text) == len(shown_titles)


def test_ranks_that_shared_cores_are_said_to_be_left_out() -> None:
    tables = settled()
    assert "Left out" not in words(tables)
    crowded = tables["overhead"].iloc[:1].assign(ranks=tables["provenance"]["cores"].max() + 1)
    tables["overhead"] = pd.concat([tables["overhead"], crowded])
    assert re.search(r"Not counted: runs on \d+ ranks, which shared \d+ cores\.", words(tables))


def test_of_each_strategy_the_interval_that_counts_has_a_row() -> None:
    rows = shown(decided("two intervals"))
    assert "s7" not in set(rows["interval"])


def test_more_rows_than_fit_leave_the_best_ones_and_say_where_the_others_lie() -> None:
    lines = tuple(Line((str(gpus), f"setup {place}"), (place, -gpus)) for gpus in (2, 8) for place in range(20))  # fmt: skip
    said = text(Screen(title="Title", heads=("GPUs", "setup"), lines=lines, rest="index.html"))
    shown_lines = said.splitlines()
    assert len(shown_lines) == MOST_LINES
    assert shown_lines[-1] == f"{40 - 26} more rows are in index.html."
    assert [line for line in shown_lines if line.endswith(("setup 12", "setup 13"))] == ["2     setup 12", "8     setup 12"]  # fmt: skip
    assert shown_lines[3:5] == ["2     setup 0", "2     setup 1"]


def test_some_rows_stand_however_much_there_is_to_say() -> None:
    lines = tuple(Line((str(place), "setup")) for place in range(9))
    remarks = tuple(f"Remark {place}." for place in range(40))
    said = text(Screen(title="Title", heads=("GPUs", "setup"), lines=lines, rest="index.html", remarks=remarks, ending=("End.",)))  # fmt: skip
    shown_lines = said.splitlines()
    assert len(shown_lines) == MOST_LINES
    assert sum(line.endswith("setup") for line in shown_lines) == 1 + 3
    assert shown_lines[-1] == "End."
    assert "Remark 0." in shown_lines


def test_no_line_is_longer_than_a_terminal() -> None:
    lines = text(
        Screen(title=" ".join(["ab"] * 60), remarks=(" ".join(["abc"] * 60),))
    ).splitlines()
    assert 77 <= max(map(len, lines)) <= 80


def test_a_best_setup_is_called_so_only_where_it_is_shown_to_be() -> None:
    tables = decided("measured")
    said = "Shown to be best (95 % confidence): deepfreeze, ulfm."
    tables["advice"]["p_strictly_best"] = 0.951
    assert said in words(tables)
    tables["advice"]["p_strictly_best"] = 0.949
    assert said not in words(tables)


def test_what_is_projected_is_marked_and_explained() -> None:
    tables = decided("several")
    said = words(tables)
    where = {own[0].partition(":")[0].split(", ", 2)[2] for own in cells(tables)}
    assert where == {"1 GPU", "2 GPUs", "1,024 GPUs, projected", "131,072 GPUs, projected"}
    assert "Projected: steps, checkpoints and restarts are assumed to cost the same as on fewer GPUs." in said  # fmt: skip
    assert "GPU-hours a day" in said
    tables["advice"] = tables["advice"][~tables["advice"]["projected"]]
    assert "rojected" not in words(tables)
    assert "rank-h" in study_text(tables), "processes on CPU are no GPUs"


def test_an_interval_that_spans_more_than_tenfold_stands_beside_its_number() -> None:
    tables = narrow()
    advice = tables["advice"]
    advice["best_minutes_lo"] = advice["best_minutes_hi"] / 10.1
    for own, row in zip(cells(tables), records(shown(tables)), strict=True):
        assert "[" in own[2]
        assert own[4].split()[1][0].isdigit()
        assert (" - " in own[5]) is (row["goodput"] >= 0.5)


def test_a_loss_has_its_interval() -> None:
    """Where there is no room for all, narrow ones are left out."""
    tables = narrow()
    assert all(" % [" in own[3] for own in cells(tables))
    named = screen(tables)
    long = replace(named.blocks[0], choices=tuple(replace(each, label="x" * 22) for each in named.blocks[0].choices))  # fmt: skip
    assert not any(" % [" in line.text for line in table([long], 80))


def test_of_no_failure_nothing_is_firm() -> None:
    tables = decided("measured")
    tables["failure_rates"]["failures"] = 0
    for own in cells(tables):
        assert own[2].startswith("at least ")
        assert own[3].startswith("at most ")
        assert own[5] == ""
        assert re.match("(saves|costs) at (least|most) ", own[4])
    assert "Shown to be best" not in words(tables)
    assert "No failure was seen: the best interval is at least this" in words(tables)


def test_where_next_to_nothing_gets_done_no_interval_is_recommended() -> None:
    tables = decided("measured")
    tables["advice"][["goodput", "goodput_lo", "goodput_hi"]] = 0.0101
    assert "none helps" not in words(tables)
    tables["advice"][["goodput", "goodput_lo", "goodput_hi"]] = 0.0099
    assert "none helps" in words(tables)


def test_a_published_rate_says_that_the_reader_s_may_differ() -> None:
    tables = decided("measured")
    tables["advice"] = tables["advice"][tables["advice"]["gpus"] < 131_072]
    last = shown(tables).query("recovery == 'restart' and gpus == 1024").set_index("strategy")
    said = words(tables)
    assert "Failures as published of Llama 3 405B, 16,384 H100: one in 49 h on 1,024 GPUs. Yours may differ." in said  # fmt: skip
    each = [f"{name} {plain(last['best_minutes_rarer'][name])} or {plain(last['best_minutes_oftener'][name])} min" for name in last.index]  # fmt: skip
    of = "At 1/3 or 3 times the failures, restart, 1,024 GPUs, projected: "
    assert f"{of}{', '.join(each)}." in said
    tables["advice"] = tables["advice"][tables["advice"]["strategy"] == "native"]
    (native,) = [one.removeprefix("native ") for one in each if one.startswith("native")]
    assert f"{of}{native}." in words(tables)
    tables["failure_rates"]["source"] = "own"
    assert "published" not in words(tables)
    assert "three times" not in words(tables)
    tables["failure_rates"]["failures"] = None
    said = words(tables)
    assert "Failures: one in 49 h on 1,024 GPUs, as you say." in said
    assert f"{of}{native}." in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stall_s_lo": math.nan, "stall_s_hi": math.nan}, "measured once and have no interval"),
        ({"note": UNKNOWN_SLOWDOWN}, "The slowdown during a save counts as 0"),
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
    assert "No restart was measured: assumed to be a start plus a load" in words(
        decided("measured")
    )
    assert "No restart was measured" not in words(decided("given"))


def test_what_survivors_rest_on_is_said() -> None:
    assert "Survivors continue after 77 % of failures (77 % hit a single node)." in words(decided("measured"))  # fmt: skip
    tables = decided("measured")
    surviving = tables["decision_costs"]["survived"] > 0
    tables["decision_costs"].loc[surviving, ["survived", "survived_of"]] = [0.5, 4]
    assert re.search(r"hit a single node, \d+ of \d+ kills here\)", words(tables))


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
            "The overhead of 1 of 6 setups is the paired estimate, as the one from inside the run contradicts it",
        ),
        ({"paired": math.nan}, "No baseline ran for 1 of 6 setups"),
        (
            {"overhead_lo": -0.1},
            "Inconclusive for 1 of 6 setups: the 95 % interval of the overhead contains zero",
        ),
        (
            {"accelerator": "cuda"},
            "Not the device requested: 1 of 6 setups ran on CPU (cuda asked).",
        ),
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
    assert "No setup ran twice, so the spread between runs is unknown" in words(tables)


def test_resumed_runs_and_studies_of_baselines_are_told() -> None:
    tables = changed(settled(), "provenance", continued=2)
    assert "2 runs continued after an interruption: not timed." in words(tables)
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
    assert re.search(r"Do not trust restarts: in deterministic mode 1 of \d+ runs ended with different bits", said)  # fmt: skip
    assert "Do not trust the comparison of bits: it missed 1 of " in said
    assert f"; controls caught: {controls - 1} of {controls}." in said


def test_training_that_failures_changed_is_told() -> None:
    goodput = Study(struck=("exponential mean_s=60",)).tables()["goodput"]
    tables = {**settled(), "goodput": goodput}
    assert "Failures changed" not in words(tables)
    said = words(changed(tables, "goodput", kept=False))
    assert "Failures changed the trained weights in 1 of 6 setups (restart; table goodput)." in said  # fmt: skip


def test_the_range_of_overheads_names_their_setups() -> None:
    assert re.search(r"Measured overhead, on top of training without checkpoints: [\d.]+ % \[.*\] \(.*, [12] ranks?\) to [\d.]+ % \[", words(settled()))  # fmt: skip


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
    assert max(map(len, lines)) <= 80
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


def test_costs_of_cpu_cores_are_no_costs_of_gpus() -> None:
    words_of_it = "These costs were measured on CPU cores: a GPU's differ."
    tables = decided("measured")
    assert words_of_it in words(tables)
    on_gpu = {
        name: tables[name].assign(measured_on="cuda") for name in ("advice", "decision_costs")
    }
    assert words_of_it not in words({**tables, **on_gpu})
