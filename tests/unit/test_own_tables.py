"""The tables of an own training, from traces that are written by hand, against what is computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from own_studies import HOST, Training, baseline, cell, tables_of, write_run

from ckptbench.analysis.tables.registry import DECIDED, DERIVED, OWN, TABLES
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.common.errors import RunFolderError
from ckptbench.own import made
from ckptbench.own.answer import own_text
from ckptbench.own.record import seal
from ckptbench.report.commands.verbs import run
from ckptbench.report.figures import OWN_FIGURES

WHOLE = Training(every=5)
"""22 steps, saves after 5, 10, 15 and 20: 18 s from the end of the warm-up to the last step without them, and 0.75 s more for each."""
BACKGROUND = Training(every=5, stall_s=0.25, hidden_s=0.5, finished_s=0.75, clean_s=1.5)
TRUTH = {"stall_s": 0.5, "slowdown_s": 0.25, "durable_s": 0.5}


def study(runs: Path, *, repeats: int = 3, **trainings: Training) -> list[Path]:
    """Every training with its baseline, repeated; each repeat is slower than the one before by a hundredth."""
    found = []
    for repeat in range(repeats):
        for engine, training in trainings.items():
            slower = replace(training, step_s=training.step_s * (1 + repeat / 100))
            found.append(write_run(runs, baseline(repeat, engine=engine), replace(slower, every=0)))
            found.append(write_run(runs, cell(5, repeat, engine=engine), slower))
    return found


def only(frame: pd.DataFrame, **values: Any) -> dict[str, Any]:
    chosen = frame[(frame[list(values)] == pd.Series(values)).all(axis=1)] if values else frame
    (row,) = chosen.to_dict("records")
    return row


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Two engines, three repeats."""
    return tables_of(study(tmp_path_factory.mktemp("runs"), plain=WHOLE, later=BACKGROUND))


def test_every_table_has_its_columns_and_is_read_again(
    two: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    write_tables(tmp_path, two)
    assert tuple(two) == made.TABLES
    read = read_tables(tmp_path, made.TABLES)
    every = {**TABLES, **DECIDED, **OWN}
    assert all(list(read[name].columns) == every[name].table.names for name in made.TABLES)


def test_a_checkpoint_is_what_the_probe_measures(two: dict[str, pd.DataFrame]) -> None:
    rows = two["own_saves"].groupby("run").get_group("engine_later-interval_5-rep0")
    assert list(rows["step"]) == [5, 10, 15, 20]
    assert list(rows["first"]) == [True, False, False, False]
    assert rows["stall_s"].to_numpy() == pytest.approx(0.25)
    assert rows["hidden_s"].to_numpy() == pytest.approx(0.5)
    assert rows["finished_s"].to_numpy() == pytest.approx(0.75)
    assert rows["written_back_s"].to_numpy() == pytest.approx(1.5)


def test_costs_are_those_of_the_traces(two: dict[str, pd.DataFrame]) -> None:
    row = only(two["strategies"], strategy="engine=plain")
    for name, truth in TRUTH.items():
        low, high = (row[f"{name}_{end}"] for end in ("lo", "hi"))
        assert row[name] == pytest.approx(truth, rel=1e-3)
        assert low <= row[name] * (1 + 1e-9) <= high * (1 + 2e-9)
    assert (row["interval"], row["checkpoints"], row["runs"]) == ("s5", 9, 3)


def test_both_estimates_of_the_overhead_are_those_of_the_traces(
    two: dict[str, pd.DataFrame],
) -> None:
    """Of three repeats with steps of 1, 1.01 and 1.02 s: 18 steps after the warm-up, and four checkpoints of 0.75 s."""
    row = only(two["overhead"], strategy="engine=plain")
    truth = 4 * 0.75 / (18 * 1.01)
    assert row["paired"] == pytest.approx(truth)
    assert row["in_run"] == pytest.approx(truth, rel=1e-3)
    assert row["paired_lo"] < row["paired"] < row["paired_hi"]
    assert row["agree"]
    assert row["note"] == ""


def test_placeholders_become_a_strategy_and_a_measured_interval(
    two: dict[str, pd.DataFrame],
) -> None:
    assert set(two["overhead"]["strategy"]) == {"engine=plain", "engine=later"}
    assert set(two["overhead"]["framework"]) == {"train.py"}
    assert set(two["runs"]["interval"]) == {"s5", "never"}


def test_the_decision_is_that_of_the_same_numbers_in_a_file(
    two: dict[str, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = only(two["decision_costs"], strategy="engine=later")
    assert (row["stall_s"], row["slowdown_s"]) == pytest.approx((0.25, 0.5), rel=1e-3)
    assert row["durable_s"] == pytest.approx(1.5)  # seen written back
    assert row["down_s"] == pytest.approx(5 + 1.01)
    file = tmp_path / "costs.yaml"
    saving = {name: row[name] for name in ("stall_s", "slowdown_s", "durable_s")}
    content = {
        "title": "the same", "gpus": 1, "step_s": row["step_s"], "steps_per_epoch": 5, "interval": "5 steps",
        "strategies": [{"name": "later", **saving}], "recoveries": [{"name": "restart", "down_s": row["down_s"]}],
    }  # fmt: skip
    file.write_text(yaml.safe_dump(content))
    (given,) = asked("--costs", str(file), capsys)
    own = only(two["advice"], strategy="engine=later")
    assert given["steps"] == round(own["best_steps"])
    assert given["loses"] == pytest.approx(1 - own["goodput"], rel=1e-9)
    assert given["now"]["loses"] == pytest.approx(1 - own["goodput_in_use"], rel=1e-9)


def asked(option: str, path: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `ckptbench decide` says of each strategy."""
    assert run(["decide", option, path, "--rate", "llama3", "--gpus", "1", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["strategies"]
    return found


def test_the_command_decides_from_the_tables(
    two: dict[str, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tables(tmp_path, two)
    for found in asked("--study", str(tmp_path), capsys):
        own = only(two["advice"], strategy=found["name"])
        assert found["steps"] == round(own["best_steps"])


def said(tables: dict[str, pd.DataFrame]) -> str:
    """The answer, without line breaks."""
    return " ".join(own_text(tables).split())


def test_the_answer_names_the_setting_and_the_whole_cost(two: dict[str, pd.DataFrame]) -> None:
    lines = own_text(two)
    text = " ".join(lines.split())
    steps = round(only(two["advice"], strategy="engine=later")["best_steps"])
    assert f"save every {steps:,} steps" in text
    assert f"save_steps={steps}" in text
    assert "every 5 steps loses 1" in text
    assert "stalls 250 ms" in text
    assert "hides 5" in text
    assert "is finished after 750 ms" in text
    assert "24 checkpoints were seen written back" in text.replace("12 of ", "")
    assert "Fit to quote" in text
    assert len(lines.splitlines()) <= 30


def test_an_answer_of_many_engines_stays_on_one_screen(tmp_path: Path) -> None:
    engines = {f"engine{number}": replace(WHOLE, stall_s=0.1 + number / 10) for number in range(6)}
    lines = own_text(tables_of(study(tmp_path, repeats=2, **engines))).splitlines()
    assert len(lines) <= 30
    assert sum("save_steps=" in line for line in lines) == 4
    assert "Of 2 more: results/own/tables/advice.csv and strategies.csv." in lines


def test_an_overhead_with_dear_first_checkpoints_is_told_from_that_of_later_ones(
    tmp_path: Path,
) -> None:
    """What an interval loses is by the later ones."""
    words = "First checkpoints are in the measured overhead: without them 17 %."
    assert words not in said(tables_of(study(tmp_path / "even", plain=WHOLE)))
    assert words in said(tables_of(study(tmp_path / "dear", plain=replace(WHOLE, first_s=5.0))))


def test_one_run_has_no_interval(tmp_path: Path) -> None:
    tables = tables_of(study(tmp_path, repeats=1, plain=WHOLE))
    row = only(tables["overhead"])
    assert pd.isna(row["paired_lo"])
    assert "one repeat: no interval" in row["note"]
    assert "No setup ran twice" in own_text(tables)


def test_without_another_placeholder_the_engine_is_the_name(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, baseline(), Training())]
    folders += [write_run(tmp_path, cell(every), Training(every=every)) for every in (4, 6)]
    tables = tables_of(folders)
    assert list(tables["overhead"]["strategy"]) == ["torch.save", "torch.save"]
    assert set(tables["overhead"]["interval"]) == {"s4", "s6"}
    assert "every 4 steps loses" in said(tables)


def test_the_interval_is_found_where_a_baseline_replaces_several_values(tmp_path: Path) -> None:
    """What changes the measured interval is the interval: here its name is `often`, and its value counts epochs of 2 steps."""
    folders = [write_run(tmp_path, baseline(), Training())]
    for engine in ("one", "two"):
        for often in (2, 3):
            own = replace(cell(often), id=f"{engine}-{often}", values={"engine": engine, "often": str(often)})  # fmt: skip
            folders.append(write_run(tmp_path, own, Training(every=2 * often)))
    tables = tables_of(folders)
    assert set(tables["overhead"]["strategy"]) == {"engine=one", "engine=two"}
    assert set(tables["overhead"]["interval"]) == {"s4", "s6"}
    assert tables["overhead"]["paired_repeats"].eq(1).all()


def test_engines_that_a_baseline_replaces_alone_are_no_intervals(tmp_path: Path) -> None:
    """The interval is fixed in the command."""
    folders = [write_run(tmp_path, baseline(), Training())]
    for engine, training in (("plain", WHOLE), ("later", BACKGROUND)):
        own = replace(cell(5), id=engine, values={"engine": engine})
        folders.append(write_run(tmp_path, own, training))
    overhead = tables_of(folders)["overhead"]
    assert set(overhead["strategy"]) == {"engine=plain", "engine=later"}
    assert overhead["repeats"].eq(1).all()


@pytest.mark.parametrize("steps", [22, 20])
def test_what_baselines_do_at_the_same_steps_is_no_cost_of_a_checkpoint(
    steps: int, tmp_path: Path
) -> None:
    """An evaluation of 3 s before each save, of which the last may be after the last step."""
    training = replace(WHOLE, steps=steps, pause_s=3.0)
    tables = tables_of(study(tmp_path, plain=training))
    assert only(tables["strategies"])["slowdown_s"] == pytest.approx(0.25, rel=1e-3)
    row = only(tables["overhead"])
    followed = 4 if steps == 22 else 3
    usual_s = (steps - 4) * 1.01 + 3.0 * followed
    cost_s = 4 * 0.5 + 0.25 * followed
    assert row["paired"] == pytest.approx(cost_s / usual_s)
    assert row["in_run"] == pytest.approx(cost_s / usual_s, rel=0.1)
    assert row["agree"]


def test_an_engine_that_slows_every_step_down_is_not_the_first_by_its_short_stall(
    tmp_path: Path,
) -> None:
    folders = study(tmp_path, repeats=2, plain=WHOLE)
    for repeat in range(2):
        step_s = 1 + repeat / 100
        usual = Training(every=5, step_s=1.5 * step_s, stall_s=0.01, hidden_s=0.01)
        folders.append(
            write_run(tmp_path, baseline(repeat, engine="slow"), Training(step_s=step_s))
        )
        folders.append(write_run(tmp_path, cell(5, repeat, engine="slow"), usual))
    tables = tables_of(folders)
    assert only(tables["decision_costs"], strategy="engine=slow")["slower_everywhere"] == pytest.approx(1.5, rel=0.02)  # fmt: skip
    assert only(tables["advice"], wins=True, rate="llama3")["strategy"] == "engine=plain"
    assert list(tables["strategies"]["strategy"]) == ["engine=plain", "engine=slow"]


def test_a_baseline_that_saved_is_told(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, baseline(), Training(every=11)), write_run(tmp_path, cell(5), WHOLE)]  # fmt: skip
    tables = tables_of(folders)
    assert "baselines saved too (2 times at most)" in only(tables["overhead"])["note"]
    assert "Baselines saved too, up to 2 times" in own_text(tables)


def test_a_value_that_never_saved_is_told(tmp_path: Path) -> None:
    folders = [*study(tmp_path, repeats=1, plain=WHOLE), write_run(tmp_path, cell(100, engine="plain"), Training())]  # fmt: skip
    tables = tables_of(folders)
    assert len(tables["overhead"]) == 1
    assert "Never saved: engine=plain, interval=100" in said(tables)


def test_nothing_that_saves_leaves_an_answer_and_figures(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, baseline(), Training()), write_run(tmp_path, cell(100), Training())]  # fmt: skip
    tables = tables_of(folders)
    assert "Nothing to decide from" in own_text(tables)
    for entry in OWN_FIGURES.values():
        entry.draw(tables)


def test_a_baseline_with_other_steps_is_compared_with_nothing(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, baseline(), Training(steps=30)), write_run(tmp_path, cell(5), WHOLE)]  # fmt: skip
    row = only(tables_of(folders)["overhead"])
    assert row["paired_repeats"] == 0
    assert "1 of 1 baselines made other steps than their run, as 30 and not 22" in row["note"]
    assert row["overhead_from"] == "in_run"


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (Training(steps=4, every=2), "it has 4 steps, and the first 4 count for nothing"),
        (Training(every=1), "a save was under way in every step"),
    ],
)
def test_a_run_whose_times_do_not_count_is_told(
    training: Training, words: str, tmp_path: Path
) -> None:
    folders = [*study(tmp_path, repeats=1, plain=WHOLE), write_run(tmp_path, cell(1, engine="plain"), training)]  # fmt: skip
    tables = tables_of(folders)
    assert words in only(tables["own_runs"], run="engine_plain-interval_1-rep0")["untimed"]
    assert len(tables["overhead"]) == 1
    assert "1 of 3 runs count for nothing, as engine_plain-interval_1-rep0" in said(tables)  # fmt: skip


def test_a_run_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, baseline(), Training(), cell={"id": "old", "seed": 1})
    with pytest.raises(RunFolderError, match=r"run\.json: it names no cell of this version"):
        tables_of([folder])


def test_a_disturbed_run_is_told(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path, baseline(), Training(), others=0.3),
        write_run(tmp_path, cell(5), WHOLE),
    ]
    tables = tables_of(folders)
    assert "disturbed: the baseline of repeat 0 (other programs used 30.0%" in only(tables["overhead"])["note"]  # fmt: skip
    assert "Do not quote: other programs disturbed 1 of 2 runs" in own_text(tables)


def test_what_a_job_on_gpus_cannot_tell_of_others_is_left_out(tmp_path: Path) -> None:
    on_gpus = {"measured_on": "gpu", "host": {**HOST, "gpus": ["A GPU", "A GPU"]}, "others": None, "stolen": None}  # fmt: skip
    folders = [
        write_run(tmp_path, baseline(), Training(), **on_gpus),
        write_run(tmp_path, cell(5), WHOLE, **on_gpus),
    ]
    tables = tables_of(folders)
    assert tables["machine"]["disturbed"].isna().all()
    assert "Do not quote" not in said(tables)
    assert "Measured on GPU A GPU (a CPU, 2 cores, ext4)" in said(tables)
    assert "GPUs setup" in said(tables)
    assert "disturbed" not in OWN_FIGURES["overhead"].draw(tables).caption


def test_ranks_that_save_nothing_are_in_the_timeline(tmp_path: Path) -> None:
    """Only rank 0 saves, as under DDP."""
    folders = [write_run(tmp_path, cell(5), replace(BACKGROUND, ranks=2))]
    other = folders[0] / "probe" / "trace-node0-101-boot0.jsonl"
    other.write_text("".join(line for line in other.read_text().splitlines(keepends=True) if '"save"' not in line))  # fmt: skip
    seal(folders[0])
    timeline = tables_of(folders)["timeline"]
    assert set(timeline["rank"]) == {0, 1}
    saves = timeline[timeline["kind"] == "save"].set_index("rank")
    assert saves.loc[0, "end_s"] == pytest.approx(0.25)
    assert saves.loc[1, "end_s"] == pytest.approx(0.0)
    (finished,) = timeline.loc[timeline["kind"] == "commit", "end_s"]
    assert finished == pytest.approx(0.75)


@pytest.mark.parametrize("name", OWN_FIGURES)
def test_figures_promise_no_more_than_the_probe_sees(
    name: str, two: dict[str, pd.DataFrame]
) -> None:
    figure = OWN_FIGURES[name].draw(two)
    assert "Train.py" not in figure.caption
    words = [figure.caption, *(text.get_text() for text in figure.findobj(match=lambda own: hasattr(own, "get_text")))]  # fmt: skip
    assert len(figure.axes) >= 1
    for promise in ("power cut", "stable storage", "seed", "survives", "batch 0", "0 epochs"):
        assert not [text for text in words if promise in text]
    if name in ("stall", "strategies"):
        assert any("hidden" in text.lower() for text in words)


def test_what_is_hidden_by_a_save_that_no_step_follows_is_not_known(tmp_path: Path) -> None:
    """It comes from the first checkpoint, or from none."""
    folders = [write_run(tmp_path / "two", cell(11), Training(every=11))]
    assert only(tables_of(folders)["strategies"])["slowdown_s"] == pytest.approx(0.25, rel=1e-3)
    folders = [write_run(tmp_path / "one", cell(22), Training(every=22))]
    tables = tables_of(folders)
    assert pd.isna(only(tables["strategies"])["slowdown_s"])
    assert "what it hides is not known, as no step followed" in said(tables)
    OWN_FIGURES["timeline"].draw(tables)


def test_tables_that_are_empty_are_those_of_the_main_study() -> None:
    assert set(made.UNPROVEN) <= set(DERIVED)
