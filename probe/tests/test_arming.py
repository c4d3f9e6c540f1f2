"""A program that `ckptbench-probe run` starts is measured without a change, and its behaviour does not change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probed import Bench, interpreters

TRAINING = """
from safetensors.torch import save_file
from ckptbench_probe import session
with session() as s:
    for step in range(1, 11):
        s.step()
        if step % 4 == 0:
            save_file({}, f"step-{step}")
print("end of the training")
"""
"""It counts its steps by the session; its saves are found by the hook."""
SLEEPING = TRAINING + "import time; print('sleeping', flush=True); time.sleep(60)\n"


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: Path(path).name)
def test_a_program_is_measured_under_every_python(python: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, launcher=python)
    bench.write("train.py", TRAINING)
    ended = bench.run(python, "train.py")
    assert (ended.code, ended.out) == (0, "end of the training\n")
    assert ended.summary["updates"] == 10
    assert [one["updates"] for one in ended.summary["checkpoints"]] == [4, 8]
    assert ended.summary["checkpoints"][0]["kinds"] == ["safetensors"]
    assert ended.line("training").startswith("training      1 rank, 10 steps")


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: Path(path).name)
def test_another_python_than_the_launchers_is_measured(python: str, bench: Bench) -> None:
    bench.write("train.py", TRAINING)
    assert bench.run(python, "train.py").summary["updates"] == 10


@pytest.mark.parametrize(
    "command",
    [
        ["{python}", "-c", "{text}"],
        ["{python}", "-O", "train.py"],
        ["{python}", "-s", "train.py"],
        ["{python}", "-m", "train"],
        ["sh", "-c", "{python} train.py"],
        ["sh", "-c", "exec {python} - < train.py"],
        ["env", "GREETING=hello", "{python}", "train.py"],
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_every_way_to_start_python_is_measured(command: list[str], bench: Bench) -> None:
    bench.write("train.py", TRAINING)
    ended = bench.run(*(word.format(python=sys.executable, text=TRAINING) for word in command))
    assert ended.summary["updates"] == 10
    assert len(ended.summary["checkpoints"]) == 2


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_is_closed_to_the_probe_runs_and_that_is_said(
    option: str, bench: Bench
) -> None:
    ended = bench.run(sys.executable, option, "-c", "print('trained')")
    assert (ended.code, ended.out) == (0, "trained\n")
    assert len(ended.told) == 1
    assert ended.told[0].startswith("no rank reported")


def test_an_empty_environment_is_said(bench: Bench) -> None:
    ended = bench.run("env", "-i", sys.executable, "-c", "print('trained')")
    assert (ended.code, ended.out) == (0, "trained\n")
    assert ended.told[0].startswith("no rank reported")


def test_the_program_sees_the_paths_that_it_sees_without(bench: Bench) -> None:
    text = "import sys, json; print(json.dumps([sys.path, sys.argv]))"
    plain = subprocess.run(
        [sys.executable, "-c", text, "word"], cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert bench.run(sys.executable, "-c", text, "word").out == plain.stdout
    assert json.loads(plain.stdout)[1] == ["-c", "word"]


def test_little_is_imported_before_an_engine_is(bench: Bench) -> None:
    text = "import sys; print(*sorted(name for name in sys.modules))"
    plain = subprocess.run([sys.executable, "-c", text], env=bench.environment(), capture_output=True, text=True, check=True)  # fmt: skip
    more = set(bench.run(sys.executable, "-c", text).out.split()) - set(plain.stdout.split())
    assert more <= {
        "ckptbench_probe",
        "ckptbench_probe.arm",
        "sitecustomize",
        "typing",
        "__future__",
    }


@pytest.mark.parametrize(
    "hidden", ["print('hidden')", "import nothing_of_this_name", "raise SystemExit(7)"]
)
def test_the_sitecustomize_that_is_hidden_runs_as_it_does_without(
    hidden: str, bench: Bench
) -> None:
    folder = bench.folder / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(hidden)
    text = "import sys; print(sys.modules['sitecustomize'].__file__)"
    plain = subprocess.run(
        [sys.executable, "-c", text], env=bench.environment(PYTHONPATH=str(folder)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    ended = bench.run(sys.executable, "-c", text, PYTHONPATH=str(folder))
    if (
        "import nothing" not in hidden
    ):  # Python then leaves no module of that name; armed it leaves the probe's
        assert ended.out == plain.stdout
    assert ended.code == plain.returncode
    assert "nothing_of_this_name" in ended.err or "nothing" not in hidden


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands(code: int, bench: Bench) -> None:
    assert bench.run("sh", "-c", f"exit {code}").code == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGINT])
def test_a_command_that_dies_of_a_signal_makes_the_launcher_die_of_it(
    number: signal.Signals, bench: Bench
) -> None:
    assert bench.run("sh", "-c", f"kill -{number.value} $$").code == -number


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
)
def test_signals_reach_the_command(number: signal.Signals, bench: Bench) -> None:
    text = f"import signal, time; signal.signal({number.value}, lambda *_: exit(9)); print('ready', flush=True); time.sleep(60)"
    started = bench.start(sys.executable, "-c", text)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(number)
    assert bench.end(started).code == 9


def test_a_script_that_names_no_shell_runs(bench: Bench) -> None:
    bench.write("train.sh", 'echo trained "$1"; exit 5').chmod(0o755)
    ended = bench.run("./train.sh", "with a word")
    assert (ended.code, ended.out) == (5, "trained with a word\n")


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), ("./broken.sh", 126)])
def test_a_command_that_cannot_start_is_said_in_one_line(
    name: str, code: int, bench: Bench
) -> None:
    bench.write("broken.sh", "#!/no/such/shell").chmod(0o755)
    ended = bench.run(name)
    assert (ended.code, ended.out) == (code, "")
    assert "broken.sh cannot be started" in ended.told[0] or name in ended.told[0]
    assert "Traceback" not in ended.err


def test_a_killed_run_is_summarized_from_its_folder(bench: Bench) -> None:
    bench.write("train.py", SLEEPING)
    started = bench.start(sys.executable, "train.py", options=("--mtbf", "5h", "--gpus", "64"))
    assert started.stdout is not None
    started.stdout.readline()
    assert started.stdout.readline() == "sleeping\n"
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    started.kill()
    bench.end(started)
    told = subprocess.run(
        [*bench.probe(), "summary", str(bench.folder / "seen")], env=bench.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "1 rank, 10 steps" in told.stderr
    assert "1 of 1 processes did not end by themselves" in told.stderr
    assert "every 4 steps, by safetensors" in told.stderr
    summary = json.loads((bench.folder / "seen" / "summary.json").read_text())
    assert summary["mtbf_s"] == 18_000
    assert told.stdout == ""


def test_a_folder_that_cannot_be_written_to_leaves_the_command_as_it_is(bench: Bench) -> None:
    bench.write("seen", "a file where the folder should be")
    ended = bench.run("sh", "-c", "echo trained; exit 3")
    assert (ended.code, ended.out) == (3, "trained\n")
    assert len(ended.told) == 1
    assert "cannot be written to" in ended.told[0]
    assert "without being measured" in ended.told[0]


def test_a_folder_that_is_full_leaves_the_program_as_it_is(bench: Bench) -> None:
    """A limit of the size of files stands for a full disk: writes fail."""
    limit = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
for _ in range(80):
    save_file({}, "one")
with session"""
    bench.write("train.py", TRAINING.replace("with session", limit))
    ended = bench.run(sys.executable, "train.py")
    assert (ended.code, ended.out) == (0, "end of the training\n")
    assert sum("is no longer measured" in line for line in ended.told) == 1


def test_closed_outputs_change_nothing(bench: Bench) -> None:
    bench.write("train.py", TRAINING.replace("print", "len"))
    program = f"import os, subprocess; os.close(1); os.close(2); exit(subprocess.call({[*bench.probe(), 'run', '--folder', 'seen', '--', sys.executable, 'train.py']!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=bench.folder, env=bench.environment(), check=False
    )
    assert done.returncode == 0
    assert json.loads((bench.folder / "seen" / "summary.json").read_text())["updates"] == 10


def test_the_last_of_two_runs_in_a_folder_is_told_of(bench: Bench) -> None:
    bench.write("train.py", TRAINING)
    bench.write("short.py", TRAINING.replace("range(1, 11)", "range(1, 6)"))
    first = bench.run(sys.executable, "train.py").summary["run"]
    time.sleep(1.1)
    assert bench.run(sys.executable, "short.py").summary["updates"] == 5
    told = [
        subprocess.run([*bench.probe(), "summary", "seen", *more], cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=True).stderr
        for more in ([], ["--run", first])
    ]  # fmt: skip
    assert "5 steps" in told[0]
    assert "1 more runs lie in" in told[0]
    assert "10 steps" in told[1]


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--"],
        ["run", "--mtbf", "soon", "--", "true"],
        ["run", "--gpus", "0", "--", "true"],
    ],
)
def test_a_wrong_command_line_is_said_in_one_line(words: list[str], bench: Bench) -> None:
    done = subprocess.run(
        [*bench.probe(), *words], cwd=bench.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ckptbench-probe")
