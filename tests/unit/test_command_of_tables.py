"""`ckptbench decide` with the costs of a study or of a file: the screen of a study, for the reader's GPUs and failures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from decision_tables import REPOSITORY, measured
from figure_tables import Study

from ckptbench.analysis.tables.store import write_tables
from ckptbench.cli.tables import usual
from ckptbench.cli.verbs import WRONG_USE, run
from ckptbench.common.errors import ConfigError
from ckptbench.decide.inputs import DECISION_COSTS
from ckptbench.report.answer import STUDY_TABLES
from ckptbench.report.page.start import measured_cases

COSTS = str(REPOSITORY / "config" / "costs-example.yaml")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("study")
    tables = Study(frameworks=("pytorch",)).tables()
    costs = {DECISION_COSTS.name: measured()}
    write_tables(folder, {**{name: tables[name] for name in STUDY_TABLES}, **costs})
    return str(folder)


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = run(["decide", *arguments])
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    return captured.out


def strategies(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict]:
    told = json.loads(said([*arguments, "--json"], capsys))
    return {each["name"]: each for each in told["strategies"]}


def test_a_file_of_costs_is_answered_at_its_own_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["--costs", COSTS, "--mtbf", "14h"], capsys)
    lines = text.splitlines()
    assert lines[0] == "my training: 512 GPUs, step 2.5 s, MTBF 14 h"
    assert re.match(r"now +21 min +loses 6.9 %$", lines[2])
    assert re.match(
        r"asynchronous, shrink +27 min \[26, 29\] +loses 1.2 % +saves 705 GPU-h/day$", lines[3]
    )
    assert "Now: every 500 steps, torch.save, restart; savings are against that." in lines
    assert max(map(len, lines)) <= 80


def test_the_command_and_the_options_agree(capsys: pytest.CaptureFixture[str]) -> None:
    """The costs of the file, written as options: the same model answers both."""
    of_file = strategies(["--costs", COSTS, "--mtbf", "14h", "--restart", "10min"], capsys)
    options = ["--gpus", "512", "--mtbf", "14h", "--step", "2.5s", "--blocking", "torch.save=60s", "--restart", "10min", "--now", "500 steps"]  # fmt: skip
    alone = strategies(options, capsys)["torch.save"]
    other = of_file["torch.save, restart"]
    for key in ("steps", "loses", "fine_from_steps", "fine_to_steps", "saves_gpu_hours_a_day"):
        assert other[key] == pytest.approx(alone[key])
    assert other["now"]["loses"] == pytest.approx(alone["now"]["loses"])
    assert other["steps_lo"] < other["steps"] < other["steps_hi"]


@pytest.mark.parametrize("rate", [["--mtbf", "14h"], ["--rate", "llama3"]])
def test_other_rates_are_in_json_where_the_text_has_them(
    rate: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    case = ["--costs", COSTS, *rate]
    assert "At 1/3 or 3 times the failures: " in said([*case, "--explain"], capsys)
    for each in strategies(case, capsys).values():
        assert each["interval_s_if_failures_a_third"] > each["interval_s"] > each["interval_s_if_failures_three_times"]  # fmt: skip
    log = str(REPOSITORY / "config" / "failures" / "example" / "log.csv")
    (first, *_) = strategies(["--costs", COSTS, "--log", log], capsys).values()
    assert first["interval_s_if_failures_a_third"] is None


def test_saves_that_wait_for_the_one_before_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file of costs as among options."""
    costs = tmp_path / "costs.yaml"
    costs.write_text(
        "title: mine\ngpus: 256\nstep_s: 2.5\nsteps_per_epoch: 12\nstrategies:\n  - {name: async, stall_s: 3, durable_s: 93}\n"
        "recoveries:\n  - {name: restart, down_s: 480}\n"
    )
    options = ["--gpus", "256", "--step", "2.5s", "--restart", "8min", "--async", "3s+90s"]
    for case, now, slow in ((["--costs", str(costs)], ["--now", "30s"], ["--now", "90s"]), (options, ["--now", "30s"], ["--now", "90s"])):  # fmt: skip
        wait = "now each save waits 60 s for the one before"
        assert wait in said([*case, "--mtbf", "14h", *now], capsys)
        assert "each save waits" not in said([*case, "--mtbf", "14h", *slow], capsys)
    text = costs.read_text()
    costs.write_text(
        text.replace("  - {name: async", "  - {name: blocking, stall_s: 60}\n  - {name: async")
    )
    told = said(["--costs", str(costs), "--mtbf", "14h", "--now", "30s"], capsys)
    assert "each save waits" not in told  # as the first one is in use
    often = ["--mtbf", "20s", "--restart", "1s", "--step", "8s"]
    assert "async: at the best interval each save waits" in said(["--gpus", "256", *often, "--async", "3s+9s"], capsys)  # fmt: skip


def test_a_study_is_answered_for_other_gpus(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["--study", study, "--gpus", "256", "--mtbf", "14h"], capsys)
    assert text.count("256 GPUs, projected: saves stop for") == 2
    assert len(re.findall(r"^(native|deepfreeze) +[\d.]+ min", text, re.MULTILINE)) == 4
    assert len(re.findall(r"^now \(native\) ", text, re.MULTILINE)) == 2
    assert "--study" not in text


def test_ones_own_step_restart_and_interval_take_the_place_of_the_studys(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--study", study, "--gpus", "256", "--mtbf", "14h"]
    before = strategies(given, capsys)
    after = strategies([*given, "--step", "5s", "--restart", "1min", "--now", "1h"], capsys)
    for name, each in after.items():
        assert each["now"]["steps"] == 720
        assert each["loses"] < before[name]["loses"]


def test_ones_own_restart_is_that_of_ones_own_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the study says of how restarts grow with the number of GPUs: the reader's is not projected."""
    grows = json.dumps({"fit": {"down_s": [60.0, 0.0, 10.0]}})
    tables = Study(frameworks=("pytorch",)).tables()
    costs = {DECISION_COSTS.name: measured(growth=grows)}
    write_tables(tmp_path, {**{name: tables[name] for name in STUDY_TABLES}, **costs})
    given = ["--study", str(tmp_path), "--gpus", "4096", "--mtbf", "14h"]
    own, projected = (
        strategies([*given, *option], capsys) for option in (["--restart", "10min"], [])
    )
    options = ["--gpus", "4096", "--mtbf", "14h", "--step", "2.5s", "--blocking", "60s", "--restart", "10min"]  # fmt: skip
    alone = strategies(options, capsys)["blocking"]
    name = "native, restart"
    assert own[name]["loses"] == pytest.approx(alone["loses"], rel=1e-6)
    assert projected[name]["loses"] > 2 * own[name]["loses"]


def test_a_folder_without_a_study_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="name its folder results/tables") as raised:
        run(["decide", "--study", str(tmp_path), "--mtbf", "14h"])
    assert "\n" not in str(raised.value)


def test_settings_to_copy_are_those_of_the_rows(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Round ones that are fine."""
    given = ["--study", study, "--gpus", "256", "--mtbf", "14h"]
    told = [each for each in strategies(given, capsys).values() if each["told"]]
    text = said([*given, "--save-steps"], capsys)
    copied = [int(line.partition("interval=")[2].split()[0]) for line in text.splitlines() if "checkpoint.interval=" in line]  # fmt: skip
    assert [each["steps"] for each in told] == [646, 2033, 309, 968]
    assert copied == [600, 2000, 300, 1000]
    assert all(each["fine_from_steps"] <= steps <= each["fine_to_steps"] for each, steps in zip(told, copied, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--costs", COSTS], "--mtbf or --gpu-mtbf or --rate or --log"),
        (["--costs", COSTS, "--mtbf", "1h", "--async", "3s+9s", "--state", "1GB"], "--async and --state: leave out"),
        (["--costs", COSTS, "--mtbf", "1h", "--write-fixed", "1s"], "--write-fixed: leave out"),
    ],
)  # fmt: skip
def test_options_are_checked_before_a_file_is_read(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["decide", *options]) == WRONG_USE
    assert words in capsys.readouterr().err


def test_what_is_saved_is_so_against_the_first_strategy_whatever_the_way_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options and a file that say the same have the same answer, also for a strategy that loses more."""
    costs = tmp_path / "costs.yaml"
    costs.write_text(
        "title: mine\ngpus: 256\nstep_s: 2.5\nsteps_per_epoch: 8000\ninterval: 2880 steps\n"
        "strategies:\n  - {name: one, stall_s: 60}\n  - {name: a later, stall_s: 3, durable_s: 18003}\n"
        "recoveries:\n  - {name: restart, down_s: 480}\n",
        encoding="utf-8",
    )
    of_file = strategies(["--costs", str(costs), "--mtbf", "14h"], capsys)
    options = ["--gpus", "256", "--mtbf", "14h", "--step", "2.5s", "--blocking", "one=60s", "--async", "a later=3s+5h", "--restart", "8min", "--now", "2h"]  # fmt: skip
    alone = strategies(options, capsys)
    assert of_file.keys() == alone.keys()
    for name, each in alone.items():
        assert of_file[name]["saves_gpu_hours_a_day"] == pytest.approx(each["saves_gpu_hours_a_day"])  # fmt: skip
        assert of_file[name]["now"]["name"] == "one"
        assert of_file[name]["now"]["loses"] == pytest.approx(each["now"]["loses"])
    text = said(["--costs", str(costs), "--mtbf", "14h"], capsys)
    assert "costs 2,069 more" in text
    assert "Now: every 2,880 steps, one; savings are against that." in text
    table = said(options, capsys).splitlines()[:3]
    assert sorted(table) == sorted(text.splitlines()[2:5])


ALL_ASKED = ["--for", "hf", "--disk", "2TB", "--memory", "8GB", "--warning", "2min", "--announced", "80%"]  # fmt: skip


@pytest.mark.parametrize("form", [[], ["--explain"], ["--csv"], ["--json"], ALL_ASKED])
def test_a_study_without_costs_has_no_rows(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {**Study(frameworks=("pytorch",)).tables(), DECISION_COSTS.name: DECISION_COSTS.rows([])}  # fmt: skip
    write_tables(tmp_path, {name: tables[name] for name in (*STUDY_TABLES, DECISION_COSTS.name)})
    text = said(["--study", str(tmp_path), "--gpus", "8", "--mtbf", "14h", *form], capsys)
    assert ("No answer on the interval" in text) == (form != ["--csv"])


def test_screen_json_and_page_compare_with_the_same_interval_in_use(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the first strategy of the system and recovery: the page's first one."""
    told = strategies(["--study", study, "--gpus", "256", "--mtbf", "14h"], capsys)
    for case in measured_cases(measured(), usual(gpus=[256])):
        recovery = case["title"].rpartition(" · ")[2]
        first, *_ = case["strategies"]
        used = {(each["now"]["name"], f"{each['now']['steps']} steps", each["now"]["loses"]) for name, each in told.items() if name.endswith(recovery)}  # fmt: skip
        ((name, steps, _),) = used
        assert name == f"{first['name']}, {recovery}"
        assert steps == dict(case["pairs"])["now"]
