"""`ckptbench decide` asks for nothing that the logs show: GPUs, the time of a restart, and slow steps that may be saves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from training_logs import Made, bars, megatron, torchtitan

from ckptbench.cli.verbs import WRONG_USE, run
from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.facts import Facts, facts_of
from ckptbench.decide.training_log.joined import read_logs
from ckptbench.decide.training_log.reader import read_log

OTHERS = ["--step", "1.2s", "--blocking", "45s", "--restart", "5min"]
Program = Callable[[Made], list[str]]


def written(folder: Path, text: str | list[str], name: str = "train.log") -> Path:
    path = folder / name
    path.write_text(text if isinstance(text, str) else "\n".join(text), encoding="utf-8", newline="")  # fmt: skip
    return path


def facts(folder: Path, text: str | list[str]) -> Facts:
    return facts_of(read_log(written(folder, text)))


def jobs(folder: Path, gpus: list[int], *, tres: bool = True) -> str:
    """Of twenty hours each, every third of which fails. `billing` and CPUs are no GPUs."""
    names = ["JobID", "State", "Start", "End", "Elapsed", "AllocTRES"]
    rows = [
        [str(day), "COMPLETED" if day % 3 else "FAILED", f"2026-08-{day:02}T00:00:00", f"2026-08-{day:02}T20:00:00", "20:00:00", f"billing=99,cpu=192,gres/gpu={number},node=1"]
        for day, number in enumerate(gpus, 1)
    ]  # fmt: skip
    cut = len(names) if tres else -1
    return str(written(folder, ["|".join(row[:cut]) for row in (names, *rows)], "jobs.txt"))


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["decide", *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["decide", *arguments]) == WRONG_USE
    return capsys.readouterr().err


def test_gpus_are_those_on_which_the_jobs_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """And it is said where they were read. An option overrides them, as does what the log of a training says."""
    log = jobs(tmp_path, [16] * 12)
    told, given = said(["--log", log, *OTHERS], capsys), said(["--log", log, *OTHERS, "--gpus", "16"], capsys)  # fmt: skip
    assert told == f"16 GPUs (AllocTRES of jobs.txt) {given}"
    other = said(["--log", log, *OTHERS, "--gpus", "32"], capsys)
    assert "AllocTRES" not in other
    assert "on 32 GPUs" in other
    bar = str(written(tmp_path, bars(Made(steps=600)), "hf.log"))
    of_bar = said(["--training-log", bar, "--log", log, "--restart", "5min"], capsys)
    assert of_bar.startswith("hf.log: 16 GPUs (AllocTRES of jobs.txt), step ")
    titan = str(written(tmp_path, torchtitan(Made(steps=600)), "titan.log"))
    of_titan = said(["--training-log", titan, "--log", log, "--restart", "5min"], capsys)
    assert of_titan.startswith("titan.log: 64 GPUs, step ")


def test_jobs_of_different_sizes_leave_the_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = jobs(tmp_path, [8] * 6 + [64] * 6 + [1])
    text = refused(["--log", log, *OTHERS], capsys)
    assert re.search(r"--gpus: how many train together; the jobs of jobs.txt ran on (8|64) \(46 % of the time\), ", text)  # fmt: skip
    assert said(["--log", jobs(tmp_path, [64] * 19 + [1]), *OTHERS], capsys).startswith("64 GPUs (")
    with pytest.raises(DataError, match="no column AllocTRES: ask for them by sacct "):  # at once
        run(["decide", "--log", jobs(tmp_path, [8] * 6, tres=False), *OTHERS])


def apart(folder: Path, lines: list[str]) -> list[Path]:
    """A log for each start."""
    begins = [place for place, line in enumerate(lines) if "Starting job" in line or "using world size" in line]  # fmt: skip
    return [written(folder, lines[begin:end], f"{begin}.log") for begin, end in zip(begins, [*begins[1:], None], strict=True)]  # fmt: skip


@pytest.mark.parametrize("stride", [1, 10])
@pytest.mark.parametrize("program", [torchtitan, megatron])
def test_a_restart_is_the_gap_between_two_starts(
    program: Program, stride: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the last line before a failure to the first step behind it, without the steps of that line: in one log, and in one for each start."""
    made = Made(killed_at=(475, 1103, 1290), down_s=700.0, stride=stride)
    lines = program(made)
    found = facts(tmp_path, lines)
    # The last line comes up to a stride before the failure.
    assert len(found.restarts_s) == 3
    assert all(0.95 * 700 < each < 1.05 * 700 + 2.5 * stride for each in found.restarts_s)
    assert (found.steps, found.again) == (
        pytest.approx(2000, abs=30),
        pytest.approx(268, abs=4 * stride),
    )
    paths = apart(tmp_path, lines)
    assert facts_of(read_logs(paths)[1]).restarts_s == found.restarts_s
    logs = [argument for path in paths for argument in ("--training-log", str(path))]
    told = said([*logs, "--mtbf", "14h", "--explain"], capsys)
    assert "restart 12 min (between its starts), MTBF 14 h" in told
    assert "with a wait for GPUs in it: --restart overrides it." in told
    assert re.search(r": [12],\d\d\d steps \(and 2\d\d made again\), \d+ saves", told)
    own = said([*logs, "--mtbf", "14h", "--restart", "90s", "--explain"], capsys)
    assert "restart 90 s, MTBF 14 h" in own
    assert "between its starts" not in own
    assert "wait for GPUs" not in own


def test_a_training_that_begins_from_the_beginning_again_is_no_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Made(steps=600)
    lines = torchtitan(made)
    made.now_s += 2e5
    lines += torchtitan(made)
    found = facts(tmp_path, lines)
    assert (found.restarts_s, found.steps, found.again) == ((), 1200, 0)
    text = refused(["--training-log", str(tmp_path / "train.log"), "--mtbf", "14h"], capsys)
    assert "--restart: how long it takes" in text


SILENT = Made(step_s=1.2, stall_s=21.0, interval=500, steps=5200, noise=0.01)


def test_slow_steps_at_equal_distances_are_offered_as_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a guess: the log names no save."""
    log = str(written(tmp_path, bars(SILENT).replace("Saving", "")))
    case = ["--training-log", log, "--gpus", "8", "--mtbf", "14h", "--restart", "5min"]
    guess = "A guess: every 500 steps one step takes 21 s longer: if these are saves, give "
    assert f"the log names no save. {guess}--blocking 21s --now '500 steps'" in refused(case, capsys)  # fmt: skip
    assert f"The log names no save. {guess}--now '500 steps'." in said([*case, "--blocking", "21s"], capsys)  # fmt: skip
    assert "guess" not in said([*case, "--blocking", "21s", "--now", "500 steps"], capsys)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(bars(SILENT), id="saves are named"),
        pytest.param(bars(Made(step_s=1.2, stall_s=0.0, interval=500, steps=5200), eval_s=21.0, eval_total=3), id="evaluations"),
        pytest.param(bars(Made(step_s=1.2, stall_s=0.5, interval=500, steps=5200)).replace("Saving", ""), id="not slow"),
        pytest.param(bars(Made(step_s=1.2, stall_s=21.0, interval=500, steps=1200)).replace("Saving", ""), id="only two"),
    ],
)  # fmt: skip
def test_other_logs_give_no_guess(text: str, tmp_path: Path) -> None:
    found = facts(tmp_path, text)
    assert found.step is not None
    assert found.guess is None


def test_slow_steps_at_no_equal_distance_are_no_saves(tmp_path: Path) -> None:
    slow = {317, 640, 1502, 1711, 2900, 3555, 4807}
    lines, now_s = [], 0.0
    for step in range(1, 5001):
        now_s += 1.2 + 20 * (step in slow)
        lines.append(f"{step}/5000 [{now_s // 3600:.0f}:{now_s // 60 % 60:02.0f}:{int(now_s % 60):02}<1:00:00,  1.20s/it]")  # fmt: skip
    assert facts(tmp_path, lines).guess is None


@pytest.mark.parametrize("stride", [7, 10, 20])
def test_the_distance_is_found_between_lines_of_several_steps(stride: int, tmp_path: Path) -> None:
    lines, now_s = [], 1.7e9
    for step in range(1, 5001):
        now_s += 1.2 + 20 * (step > 1 and step % 250 == 1)
        if step % stride == 0:
            lines.append(f"iteration {step}/ 5000 | [2026-08-01 {now_s % 86400 // 3600:02.0f}:{now_s // 60 % 60:02.0f}:{now_s % 60:06.3f}] elapsed time per iteration (ms): 1200.0 |")  # fmt: skip
    found = facts(tmp_path, lines).guess
    assert found is not None
    assert (found.every, found.longer_s) == (250, pytest.approx(20.0, rel=0.05))
