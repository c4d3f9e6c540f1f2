"""The callable in a process of its own, as submitit runs it, with real signals."""

import os
import pickle
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from submitit.core.utils import DelayedSubmission

from snakemake_executor_plugin_submitit import processes
from snakemake_executor_plugin_submitit.command import CommandFailedError, NestedCommand

PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""
NODE = """
import os, sys
from submitit.core.submission import process_job
process_job(sys.argv[1])
"""
SAVES = "trap 'echo saved >> saved; exit 1' TERM; touch ready; while :; do sleep 0.05; done"


class Node:
    """A submitit process of the local cluster. Its command runs a program, as a nested Snakemake is one."""

    def __init__(self, folder: Path, program: str, stop_seconds: int = PATIENCE_S) -> None:
        self.folder = folder
        (folder / "program.sh").write_text(program)
        command = f"cd {shlex.quote(str(folder))} && bash program.sh"
        delayed = DelayedSubmission(NestedCommand(command, str(folder), stop_seconds, 1))
        delayed.set_timeout(1, 3)
        delayed.dump(folder / "1_submitted.pkl")
        variables = {"SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, str(folder)], env={**os.environ, **variables}
        )

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def result(self) -> tuple[str, object] | None:
        path = self.folder / "1_0_result.pkl"
        return pickle.loads(path.read_bytes()) if path.exists() else None


def wait_until_gone(pid: int) -> None:
    """An orphan that has ended stays in the table of processes until the system's init looks."""
    deadline = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    started: list[Node] = []
    yield started
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()


def test_the_exit_status_decides(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, "exit 3"))
    assert nodes[0].process.wait(PATIENCE_S) == 1
    kind, trace = nodes[0].result() or ("", "")
    assert kind == "error"
    assert "the job's command ended with exit status 3" in str(trace)


def test_a_signal_that_ended_the_shell_of_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "local")
    with pytest.raises(CommandFailedError, match="ended with signal SIGKILL"):
        NestedCommand("kill -KILL $$", str(tmp_path), 10, 1)()


def test_the_command_runs_in_its_folder(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, 'test "$PWD" = ' + str(tmp_path)))
    assert nodes[0].process.wait(PATIENCE_S) == 0
    assert nodes[0].result() == ("success", 0)


def test_before_the_limit_the_command_is_stopped_and_requeued(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, SAVES))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGUSR2)
    assert nodes[0].process.wait(PATIENCE_S) == 144  # how submitit's local jobs ask for another run
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert nodes[0].result() is None
    requeued = DelayedSubmission.load(tmp_path / "1_submitted.pkl")
    assert isinstance(requeued.function, NestedCommand)
    assert requeued._timeout_countdown == 2
    assert (
        tmp_path / "1_requeues.txt"
    ).read_text() == "limit\n"  # it is told of a limit of one minute at once


@pytest.mark.parametrize(
    ("after_s", "why"), [(3300, "preempted"), (3410, "limit"), (3500, "limit")]
)
def test_a_stop_long_before_the_limit_is_noted_as_a_preemption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_s: int, why: str
):
    for name, value in (("EXECUTOR", "local"), ("LOCAL_JOB_ID", "1"), ("FOLDER", str(tmp_path))):
        monkeypatch.setenv(f"SUBMITIT_{name}", value)
    command = NestedCommand("true", "/", 120, 60)
    later = time.monotonic() + after_s
    monkeypatch.setattr(time, "monotonic", lambda: later)
    command.checkpoint()
    assert (tmp_path / "1_requeues.txt").read_text() == f"{why}\n"


def test_a_command_that_ends_well_in_time_is_not_requeued(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, SAVES.replace("exit 1", "exit 0")))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGUSR2)
    assert nodes[0].process.wait(PATIENCE_S) == 0
    assert nodes[0].result() == ("success", 0)


SNAKEFILE = """
rule one:
    output: "out"
    shell: "trap 'sleep 0.5; touch {output}; exit STATUS' TERM; touch ready; while :; do sleep 0.05; done"
"""


@pytest.mark.parametrize(("status", "left_with"), [(0, 0), (1, 144)])
def test_the_rule_decides_whether_a_stopped_job_has_ended_well(
    tmp_path: Path, nodes: list[Node], status: int, left_with: int
):
    """A Snakemake that is told itself says 1 although its rule has made its output."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("STATUS", str(status)))
    nodes.append(Node(tmp_path, f"exec {sys.executable} -m snakemake --cores 1 --nolock"))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGUSR2)
    assert nodes[0].process.wait(PATIENCE_S) == left_with


def test_a_command_that_does_not_stop_is_killed_in_time(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, "trap '' TERM; echo $$ > ready; while :; do sleep 0.05; done", 2))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGUSR2)
    assert nodes[0].process.wait(PATIENCE_S) == 144


def test_a_descendant_in_another_session_is_stopped_as_well(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, "setsid sleep 3000 & echo $! > pid; touch ready; wait"))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGUSR2)
    assert nodes[0].process.wait(PATIENCE_S) == 144
    wait_until_gone(int((tmp_path / "pid").read_text()))


def test_a_launcher_that_is_told_ends_what_it_gave_a_session_itself(
    tmp_path: Path, nodes: list[Node]
):
    """The launched process would be spoilt by a SIGTERM of its own; its launcher waits for it."""
    launched = (
        "trap 'echo spoilt >> record' TERM; touch ready; sleep 1; sleep 1; echo whole >> record"
    )
    launcher = f'trap : TERM; setsid bash -c "{launched}" & while ! wait $!; do :; done; exit 1'
    nodes.append(Node(tmp_path, launcher))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGUSR2)
    assert nodes[0].process.wait(PATIENCE_S) == 144
    assert (tmp_path / "record").read_text() == "whole\n"


def test_user_signals_do_not_reach_the_command(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, "touch ready; kill -USR1 $$; kill -USR2 $$; exit 0"))
    assert nodes[0].process.wait(PATIENCE_S) == 0


def test_a_termination_is_forwarded_once_and_leaves_no_result(tmp_path: Path, nodes: list[Node]):
    nodes.append(Node(tmp_path, SAVES))
    nodes[0].wait_for("ready")
    nodes[0].process.send_signal(signal.SIGTERM)
    assert nodes[0].process.wait(PATIENCE_S) == 143
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert nodes[0].result() is None


def test_a_process_is_told_before_those_that_it_started(monkeypatch: pytest.MonkeyPatch):
    """A shell with `set -e` ends without its trap where the command that it waits for is told, and dies, first."""
    told: list[int] = []
    send = processes.tell

    def noted(them: Iterable[psutil.Process], signum: signal.Signals) -> None:
        them = list(them)
        told.extend(process.pid for process in them)
        send(them, signum)

    monkeypatch.setattr(processes, "tell", noted)
    nested = "sleep 600; :"
    for _ in range(5):
        nested = f"bash -c {shlex.quote(nested)}; :"
    with subprocess.Popen(["bash", "-c", nested]) as outermost:
        deadline = time.monotonic() + PATIENCE_S
        while len(chain := processes.descendants(outermost.pid)) < 6:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        processes.stop(outermost.pid, PATIENCE_S)
    assert told[:6] == [process.pid for process in chain]
