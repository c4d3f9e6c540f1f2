"""Runs of an own training: real commands of plain Python under the real probe."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptbench.common.errors import LaunchError, RunFolderError
from ckptbench.common.processes import living_with
from ckptbench.own import run as own_run
from ckptbench.own.cell import OwnCell, expand_own
from ckptbench.own.config import load_own_config
from ckptbench.own.record import OwnStudy, check_asked, read_run
from ckptbench.own.run import Execution, run_own
from ckptbench.own.supervised import MARK
from ckptbench.own.surroundings import of_command, of_user
from tests.own_training import TRAINING

Run = Callable[..., Path]


@pytest.fixture
def environment() -> dict[str, str]:
    """Without the Python of these tests, as a user's."""
    return {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}


@pytest.fixture
def make(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Makes a run of the training, or of other code, and returns its folder."""

    def made(
        code: str = TRAINING, *, interval: str = "5", of: str = "interval_", variables: dict[str, str] | None = None,
        execution: dict[str, Any] | None = None, **own: Any,
    ) -> Path:  # fmt: skip
        (tmp_path / "train.py").write_text(code)
        cell = next(each for each in cells(tmp_path, interval, **own) if each.id.startswith(of))
        run_own(
            cell,
            Execution(
                runs=tmp_path / "runs",
                environment=environment | (variables or {}),
                **execution or {},
            ),
        )
        return tmp_path / "runs" / cell.id

    return made


def cells(here: Path, interval: str = "5", **own: Any) -> list[OwnCell]:
    settings = {
        "command": f"{sys.executable} train.py {{folder}} {{interval}}",
        "values": {"interval": [interval]},
        "baseline": {"interval": 1_000_000},
        "directory": str(here),
    }
    return expand_own(load_own_config({"own": settings | own, "repeats": 1}))


def content(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def test_a_run_has_what_its_tables_need(make: Run, tmp_path: Path) -> None:
    run = read_run(make())
    (_, cell) = cells(tmp_path)
    assert run.cell == cell
    check_asked(run.folder, cell)
    with pytest.raises(RunFolderError, match="was made with another ranks than own has now"):
        check_asked(run.folder, dataclasses.replace(cell, ranks=7))
    assert run.summary["updates"] == 20
    assert [one["updates"] for one in run.summary["checkpoints"]] == [5, 10, 15, 20]
    assert (run.content["exit_code"], run.content["checkpoints"]) == (0, 4)
    assert 0.04 < run.content["wall_s"] < 60
    assert run.content["ended_unix_s"] > run.content["started_unix_s"]
    assert run.content["command"][-2:] == [run.content["folder"], "5"]
    assert "printed" in (run.folder / "output.txt").read_text()
    assert not Path(run.content["folder"]).exists()


def test_checkpoints_stay_where_asked_for_and_a_further_run_begins_without_them(
    make: Run, tmp_path: Path
) -> None:
    make(folder=str(tmp_path / "disk"), execution={"keep": True})
    (kept,) = (tmp_path / "disk").iterdir()
    (kept / "other").touch()
    folder = make(folder=str(tmp_path / "disk"), execution={"keep": True, "repeat": True})
    assert content(folder)["folder"] == str(kept)
    assert {path.name for path in kept.iterdir()} == {f"step-{step}" for step in (5, 10, 15, 20)}


def test_a_run_whose_seal_alone_is_gone_is_sealed_again_and_a_changed_one_is_made_again(
    make: Run,
) -> None:
    folder = make()
    first = content(folder)
    (folder / "seal.json").unlink()
    make()
    assert content(folder) == first == read_run(folder).content
    make(environment={"A": "1"})
    again = content(folder)
    assert again["started_unix_s"] > first["started_unix_s"]
    for name in ("seal.json", "probe/summary.json"):
        (folder / name).unlink()
    make(environment={"A": "1"})
    assert read_run(folder).content["started_unix_s"] > again["started_unix_s"]


def test_a_file_that_was_changed_is_no_result(make: Run) -> None:
    folder = make()
    (trace,) = (folder / "probe").glob("trace-*.jsonl")
    for path in (trace, folder / "probe" / "summary.json"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        with pytest.raises(RunFolderError, match=f"{path.name} is missing or was changed after"):
            read_run(folder)
        path.write_bytes(whole)
    (folder / "seal.json").write_text('{"run.json": ')
    with pytest.raises(RunFolderError, match=r"seal\.json"):
        read_run(folder)


def test_a_command_that_fails_is_told_with_its_exit_code_and_the_end_of_its_output(
    make: Run, tmp_path: Path
) -> None:
    with pytest.raises(LaunchError) as caught:
        make("print('so far'); raise SystemExit('no such data')")
    folder = tmp_path / "runs" / "interval_5-rep0"
    assert str(caught.value) == (
        f"the command ended with exit status 1: no such data (its output: {folder}/output.txt)\n"
        "    [output] so far\n    [output] no such data"
    )
    assert (content(folder)["status"], (folder / "seal.json").exists()) == ("failed", False)
    with pytest.raises(RunFolderError, match="did not end"):
        read_run(folder)


def test_the_last_error_of_a_command_comes_first(make: Run) -> None:
    """torchrun prints a page after it."""
    with pytest.raises(LaunchError, match=r"status 3: ValueError: no such layer \("):
        make("print('ValueError: no such layer'); print('====' * 9); raise SystemExit(3)")
    with pytest.raises(LaunchError, match=r"status 2: train.py: error: no such option \("):
        make(
            "print('train.py: error: no such option'); print('the root cause'); raise SystemExit(2)"
        )
    with pytest.raises(LaunchError, match=r"status 2: the root cause \("):
        make("print('the root cause'); print('===='); raise SystemExit(2)")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV: it has printed nothing "),
        ("import sys; sys.exit('cut off, \\0 \\x1b[31mred\\x1b[0m')", "status 1: cut off,  red "),
        ("import sys; sys.stderr.write('no line end'); sys.exit(1)", "status 1: no line end "),
        (
            "import os, shutil, sys; shutil.rmtree(os.path.dirname(sys.argv[1]))",
            r"runs/interval_5-rep0 was removed while the command ran: .* {folder}",
        ),
    ],
)
def test_what_a_command_does_to_its_output_is_told_in_one_line(
    make: Run, code: str, told: str
) -> None:
    with pytest.raises(LaunchError, match=told) as caught:
        make(code)
    first = str(caught.value).splitlines()[0]
    assert first.isprintable()
    assert "no rank reported" not in first


def test_a_command_that_kills_itself_is_told_with_the_signal(make: Run) -> None:
    with pytest.raises(LaunchError, match="was killed by SIGTERM"):
        make("import os; os.kill(os.getpid(), 15)")


def test_a_run_in_which_the_probe_sees_no_rank_is_told_in_its_own_words(make: Run) -> None:
    with pytest.raises(LaunchError, match="nothing was measured: no rank reported: no process"):
        make("print(1)")


def test_a_run_that_does_not_save_says_so_and_a_baseline_that_does(
    make: Run, caplog: pytest.LogCaptureFixture
) -> None:
    make(interval="50")
    assert "interval_50-rep0 has no checkpoint that the probe has seen" in caplog.text
    make(baseline={"interval": 10}, of="baseline")
    assert "baseline-rep0 is the run without checkpoints, and the probe has seen 2" in caplog.text


def test_a_machine_with_gpus_is_told_that_figures_speak_of_a_cpu(
    make: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    facts = own_run.host_facts
    monkeypatch.setattr(own_run, "host_facts", lambda folder: facts(folder) | {"gpus": ["H100"]})
    make()
    assert "this machine has GPUs (H100), and own.gpus is 0" in caplog.text
    caplog.clear()
    assert content(make(gpus=1))["measured_on"] == "gpu"
    assert "own.gpus" not in caplog.text


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"command": "no-such-program {folder} {interval}"}, "no-such-program, is not there"),
        ({"command": "./none.sh {folder} {interval}"}, "./none.sh, is not there"),
        ({"directory": "/no/such/folder"}, "own.directory is '/no/such/folder': there is no such"),
    ],
)
def test_what_is_not_there_is_named(make: Run, own: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        make(**own)


def test_a_script_beside_the_study_is_a_program(
    make: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} train.py "$@"\n')
    script.chmod(0o755)
    folder = make(command="./train.sh {folder} {interval}", directory=None)
    assert content(folder)["checkpoints"] == 4


def test_the_command_has_the_users_environment_and_not_the_workflows_python(make: Run) -> None:
    own = Path(sys.executable).parent
    variables = {
        "PATH": f"{own}:/usr/bin:/bin:{own}",
        "VIRTUAL_ENV": str(own.parent),
        "PYTHONPATH": "/theirs",
        "LD_LIBRARY_PATH": "/libs",
    }
    shown = "import json, os\nprint(json.dumps(dict(os.environ)))\n"
    folder = make(shown + TRAINING, variables=variables, environment={"PATH_OF": "{folder}"})
    seen = json.loads((folder / "output.txt").read_text().splitlines()[0])
    assert seen["PATH"] == "/usr/bin:/bin"
    assert "VIRTUAL_ENV" not in seen
    assert seen["LD_LIBRARY_PATH"] == "/libs"
    assert seen["PYTHONPATH"].split(":")[1:] == ["/theirs"]
    assert seen["PATH_OF"] == content(folder)["folder"]
    assert "OMP_NUM_THREADS" not in seen


def test_another_virtual_environment_stays_active() -> None:
    theirs = {"PATH": "/theirs/bin:/usr/bin", "VIRTUAL_ENV": "/theirs"}
    assert of_user(theirs) == theirs


def test_a_command_in_a_step_of_slurm_is_no_task_of_it(tmp_path: Path) -> None:
    given = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_NODELIST": "a"}
    _, cell = cells(tmp_path, ranks=4)
    assert of_command(cell, given, "") == {
        "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_NODELIST": "a", "SLURM_OVERLAP": "1",
    }  # fmt: skip


ENDLESS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("begun", "w").close()
time.sleep(600)
"""


def test_a_run_that_takes_too_long_is_ended_with_all_that_it_has_started(
    make: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_run, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr("ckptbench.own.supervised.GRACE_SECONDS", 0.5)
    with pytest.raises(LaunchError, match=r"took longer than its 2 s.*output\.txt"):
        make(ENDLESS, execution={"timeout_seconds": 2.0})
    assert (tmp_path / "begun").exists()
    assert not living_with(MARK, str(tmp_path / "runs" / "interval_5-rep0" / "probe"))


LEAVES_A_CHILD = TRAINING.replace(
    "with session()",
    """import subprocess
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with session()""",
    1,
)


def test_what_a_command_leaves_running_does_not_run_beside_the_next_one(
    make: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ckptbench.own.supervised.GRACE_SECONDS", 0.5)
    folder = make(LEAVES_A_CHILD)
    assert not living_with(MARK, str(folder / "probe"))
    assert "left 1 of its processes running" in caplog.text


def test_a_command_that_does_not_wait_for_its_training_is_told(
    make: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckptbench.own.supervised.GRACE_SECONDS", 0.5)
    with pytest.raises(LaunchError, match="ended before its training: 1 of its processes ran on"):
        make(LEAVES_A_CHILD.partition("with session()")[0])


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGTERM, "as told by SIGTERM"),
        (signal.SIGUSR2, "as told by SIGUSR2"),
        (signal.SIGINT, "by Ctrl-C"),
    ],
)
def test_a_run_that_is_told_to_stop_ends_its_command(
    make: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, told: str
) -> None:
    monkeypatch.setattr("ckptbench.own.supervised.GRACE_SECONDS", 0.5)

    def stop() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(LaunchError, match=f"was stopped,? {told}: it is made again"):
        make(ENDLESS)
    stopper.join()
    assert not living_with(MARK, str(tmp_path / "runs" / "interval_5-rep0" / "probe"))


def test_a_cell_in_use_is_named(make: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_run, "PATIENCE_SECONDS", 0.1)
    folder = make()
    holding = subprocess.Popen(
        ["flock", str(folder / ".lock"), "sh", "-c", "echo held; sleep 600"], stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert holding.stdout is not None
    try:
        holding.stdout.readline()
        with pytest.raises(LaunchError, match="is in use by process"):
            make(execution={"repeat": True})
    finally:
        os.killpg(holding.pid, signal.SIGKILL)
        holding.wait()
        holding.stdout.close()


def test_a_command_whose_script_is_killed_gets_sigterm(tmp_path: Path) -> None:
    told = "import signal, time\ndef say(*_):\n    open('told', 'w').close(); raise SystemExit\n"
    waits = "signal.signal(signal.SIGTERM, say)\nopen('begun', 'w').close()\ntime.sleep(600)\n"
    (tmp_path / "train.py").write_text(told + waits)
    _, cell = cells(tmp_path)
    OwnStudy(cells=(cell,)).write(tmp_path / "study.json")
    script = Path(__file__).resolve().parents[2] / "scripts" / "train_own.py"
    options = {"cell": json.dumps(cell.to_json()), "runs": tmp_path, "study": tmp_path / "study.json"}  # fmt: skip
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    running = subprocess.Popen([sys.executable, script, *words, "--parent", str(os.getpid())])
    await_file(tmp_path / "begun")
    running.kill()
    running.wait()
    await_file(tmp_path / "told")


def await_file(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
