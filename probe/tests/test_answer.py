"""What the summary says of how often to save where ckptbench is not installed beside the probe, and of failures."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
from traces import Written

from ckptbench.report.answer import programs as ckptbench_programs
from ckptbench_probe import programs
from ckptbench_probe.answer import Overrides, answer, likely
from ckptbench_probe.costs import costs
from ckptbench_probe.main import main
from ckptbench_probe.measures import measure
from ckptbench_probe.reading import read
from ckptbench_probe.words import as_option, counted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, 5.4, after=5).updates(6.4, 7.4, 8.4)
    return rank.save(8.4, 8.8, after=8).updates(9.8, 10.8).ended(12).into(tmp_path / "my costs")


def test_long_intervals_are_whole_numbers() -> None:
    assert counted(13_399, "step") == "13,399 steps"
    assert counted(7.5, "step") == "7.5 steps"


def test_the_users_own_values_of_a_run_are_kept_for_its_summary(tmp_path: Path) -> None:
    """Those of the summary come first. A file that is torn, or of another run, says nothing."""
    Overrides(gpus=64, mtbf_s=18_000.0).keep(tmp_path, "first")
    assert Overrides(gpus=8).or_kept(tmp_path, "first") == Overrides(gpus=8, mtbf_s=18_000.0)
    assert Overrides().or_kept(tmp_path, "second") == Overrides()
    (tmp_path / "options-first.json").write_text('{"gpus": 6')
    assert Overrides().or_kept(tmp_path, "first") == Overrides()


def test_a_time_is_written_as_users_do() -> None:
    times = {18_000: "5h", 5400: "1.5h", 172_800: "2d", 480: "8min", 100: "100s", 0.5: "500ms"}
    for seconds, text in times.items():
        assert as_option(seconds) == text


def test_without_ckptbench_the_command_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    measures = measure(read(folder))
    (line,) = answer(
        costs(measures), Overrides(mtbf_s=7200.0, gpus=64), measures, folder / "costs.yaml"
    )
    assert line.endswith(
        f"ckptbench decide --costs '{folder}/costs.yaml' --mtbf 2h --gpus 64 --save-steps"
    )
    first, line = answer(costs(measures), Overrides(), measures, Path("costs.yaml"))
    assert first == "how often to save depends on how often the job fails"
    assert line.startswith("name it: ckptbench decide --costs costs.yaml --gpus 1 --save-steps with --mtbf 14h ")  # fmt: skip


def test_without_a_rate_the_answer_is_a_table(folder: Path) -> None:
    """Young's intervals, rounded: the roots of 2 x 0.4 s x 3,600 s and of ten and a hundred times that, 54, 170 and 537 s."""
    measures = replace(measure(read(folder)), updates=200)
    first, heads, *table, last = answer(costs(measures), Overrides(), measures, Path("costs.yaml"))
    assert first == "how often to save depends on how often the job fails:"
    assert heads.split("  ")[-1] == "today's 3 steps lose"
    for line, hours, steps in zip(table, (1, 10, 100), (50, 170, 500), strict=True):
        assert line.startswith(f"{hours} h ")
        assert f" {steps} steps (" in line
        longer = line.endswith(
            "the best interval is longer than these 200 steps: save once, at the end"
        )
        assert longer is (steps > 200)
    assert all(one in last for one in ("--mtbf 14h", "--gpu-mtbf 50000h", "--log jobs.txt"))


def test_with_ckptbench_the_answer_has_its_layout(folder: Path) -> None:
    """Young's interval: the square root of 2 x 0.4 s x 7,200 s is 76 s, of steps of 1 s; 80 is a round number."""
    measures = measure(read(folder))
    now, best, steps, paste, failures = answer(
        costs(measures), Overrides(mtbf_s=7200.0, gpus=64), measures, folder / "costs.yaml"
    )
    assert re.match(r"now +3.0 s +loses 1\d %$", now)
    assert re.match(r"best +7\d s +loses 1.\d % +saves \d+ GPU-hours a day +\(fine: ", best)
    assert steps == "the best interval is longer than these 10 steps: save once, at the end; a longer training: save every 80 steps (80 s)"  # fmt: skip
    assert paste == "paste: Transformers: save_steps=80; Lightning: ModelCheckpoint(every_n_train_steps=80)"  # fmt: skip
    assert failures == "failures: one in 2.0 h, as you say; now is every 3 steps"


def test_the_settings_of_a_program_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `ckptbench decide --for`, of the program that is asked for, or of those that probably saved."""
    measures, known = measure(read(folder)), costs(measure(read(folder)))
    assert known is not None
    asked = Overrides(mtbf_s=7200.0, tool="lightning")
    pasted = [line for line in answer(known, asked, measures, folder) if line.startswith("paste: ")]
    assert pasted == [
        "paste: Lightning: ModelCheckpoint(every_n_train_steps=80)",
        "paste: or by time: ModelCheckpoint(train_time_interval=timedelta(minutes=1))",
        "paste: at a signal: #SBATCH --signal=USR1@40 in its place, and training by srun",
    ]
    background = replace(known, background=True, slowdown_s=0.1)
    told = answer(background, Overrides(mtbf_s=7200.0), measures, folder)
    assert any(
        re.match(r"paste: torchtitan: .*async_mode=async; Megatron-LM: .*--async-save$", line)
        for line in told
    )
    assert likely(replace(known, name="lightning.async")) == ["lightning"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (line,) = answer(known, asked, measures, Path("costs.yaml"))
    assert line.endswith("--save-steps --for lightning")


def test_the_table_of_programs_is_that_of_ckptbench() -> None:
    """The probe has no dependencies, so each distribution has the file."""
    own, other = (
        Path(str(module.__file__)).read_bytes() for module in (programs, ckptbench_programs)
    )
    assert own == other


def test_a_best_interval_that_loses_more_than_half_is_told(folder: Path) -> None:
    """No other one is fine there."""
    measures = measure(read(folder))
    _, best, steps, paste, _ = answer(costs(measures), Overrides(mtbf_s=3.0), measures, folder / "costs.yaml")  # fmt: skip
    assert "save every 1 step (1.0 s)" in steps
    assert "save_steps=1;" in paste
    assert "loses 92 %" in best
    assert "fine" not in best


@pytest.mark.parametrize("verb", ["run", "summary", "compare"])
def test_an_option_that_is_given_twice_is_refused(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--mtbf", "5h", "--mtbf", "9h", "x"])
    assert ended.value.code == 2
    assert "--mtbf is given twice: give it once" in capsys.readouterr().err


def test_where_no_step_is_free_of_saves_that_is_told(tmp_path: Path) -> None:
    rank = (
        Written().updates(1).save(1.0, 1.1, finished=9.0, after=1).updates(2, 3, 4).into(tmp_path)
    )
    measures = measure(read(rank))
    (line,) = answer(costs(measures), Overrides(), measures, Path("costs.yaml"))
    assert line.startswith("no answer on how often to save")


def test_where_every_save_has_failed_that_is_told(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4).save(4.0, 4.1, after=4).updates(5, 6)
    rank.events[2]["failed"] = True
    measures = measure(read(rank.into(tmp_path)))
    (line,) = answer(costs(measures), Overrides(), measures, Path("costs.yaml"))
    assert line.endswith("no answer on how often to save: every save failed")


def test_the_users_own_restart_is_in_the_costs(folder: Path) -> None:
    known = costs(measure(read(folder)), down_s=480.0)
    assert known is not None
    assert (known.down_s, known.down_from) == (480.0, "as you say")
