"""`run --syscalls`: strace records syncs, and changes nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from probed import SOURCE, Bench

SYNCING = f"""
import ctypes, os, sys
sys.path.insert(0, {str(SOURCE)!r})
from ckptbench_probe import session
os.makedirs("ü <1>\\\\", exist_ok=True)
with session() as s:
    for number in range(4):
        s.step()
        path = f"ü <1>\\\\/step {{number}}.bin"
        with s.checkpoint(path):
            with open(path, "wb") as file:
                file.write(b"x" * 4096)
                file.flush()
                if sys.argv[1] == "syncs":
                    ctypes.CDLL(None).fsync(file.fileno())  # as C++ does: Python knows nothing of it
    s.step()
print("done")
"""
BY_STRACE = ("--syscalls",)


@pytest.mark.parametrize("syncs", ["syncs", "never"])
def test_strace_sees_what_python_does_not(bench: Bench, syncs: str) -> None:
    bench.write("train.py", SYNCING)
    without = bench.run(bench.launcher, "train.py", syncs)
    assert without.line("synced").endswith("none seen from Python")
    traced = bench.run(bench.launcher, "train.py", syncs, options=BY_STRACE)
    assert (traced.code, traced.out) == (0, "done\n")
    unsafe = [line for line in traced.told if line.startswith("unsafe")]
    if syncs == "syncs":
        assert traced.line("synced").endswith(
            "4 syncs by the program or its engine, of .bin, as strace shows"
        )
        assert unsafe == []
    else:
        assert traced.line("synced").endswith("none, as strace shows")
        assert ["no sync was seen by strace" in line for line in unsafe] == [True]


@pytest.mark.parametrize("end", ["exit 7", "kill -TERM $$", "kill -KILL $$"])
def test_the_command_ends_as_without(bench: Bench, end: str) -> None:
    bench.write("train.sh", end).chmod(0o755)  # without a first line that names its shell
    without = bench.run("./train.sh")
    assert bench.run("./train.sh", options=BY_STRACE).code == without.code != 0


def test_a_signal_reaches_the_command(bench: Bench) -> None:
    bench.write("train.sh", "trap 'echo heard; exit 3' USR1; echo ready; while :; do sleep 0.01; done")  # fmt: skip
    started = bench.start("sh", "train.sh", options=BY_STRACE)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(10)
    ended = bench.end(started)
    assert (ended.code, ended.out) == (3, "heard\n")


def test_a_command_that_is_not_there_is_said_as_without(bench: Bench) -> None:
    ended = bench.run("no-such-program", options=BY_STRACE)
    assert ended.code == 127
    assert ended.told == ["no-such-program: no such program: correct the command after --"]


@pytest.mark.parametrize("strace", [None, "echo ptrace is not allowed >&2; exit 1"])
def test_without_strace_the_command_runs_and_it_is_said(
    bench: Bench, tmp_path: Path, strace: str | None
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to(str(shutil.which("sh")))
    if strace is not None:
        fake = programs / "strace"
        fake.write_text(f"#!/bin/sh\n{strace}\n")
        fake.chmod(0o755)
    bench.write("train.py", SYNCING)
    ended = bench.run(bench.launcher, "train.py", "syncs", options=BY_STRACE, PATH=str(programs))
    assert (ended.code, ended.out) == (0, "done\n")
    reason = "strace is not installed" if strace is None else "ptrace is not allowed"
    said = f"--syscalls: {reason}: the command runs without it, and only syncs by Python are seen"
    assert said in ended.told
    assert ended.line("synced").endswith("none seen from Python")


def test_ranks_that_strace_has_not_seen_are_not_judged_by_it(bench: Bench) -> None:
    """As those that `srun` starts on other nodes. Here, the file of strace tells of no process."""
    bench.write("train.py", SYNCING)
    traced = bench.run(bench.launcher, "train.py", "syncs", options=BY_STRACE)
    (file,) = traced.folder.glob("strace-*.txt")
    file.write_text("")
    command = [*bench.probe(), "summary", str(traced.folder)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "none seen from Python" in told
