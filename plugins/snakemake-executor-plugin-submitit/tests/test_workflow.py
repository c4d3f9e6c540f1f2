"""Whole workflows, with processes on this machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""

RETRIED = """
rule again:
    output: "out"
    retries: 1
    resources: runtime=lambda wildcards, attempt: 5 * attempt
    shell: "echo {resources.runtime} >> tries; test {resources.runtime} = 10 && touch {output}"
"""


WAITING = """
rule wait:
    output: "one"
    shell: "touch started; sleep 300"
rule fail:
    output: "other"
    shell: "for i in $(seq 3000); do [ -e fail ] && exit 1; sleep 0.1; done"
"""
SECRET = """
envvars: "TOKEN"
rule look:
    output: "found"
    shell: "python3 look.py $TOKEN_LENGTH {output}"
"""
LOOK = """
import glob, os, sys
found = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        found += [path] if os.environ["TOKEN"].encode() in open(path, "rb").read() else []
    except OSError:
        continue  # it has ended
assert len(os.environ["TOKEN"]) == int(sys.argv[1])
open(sys.argv[2], "w").write(f"{found}")
"""


def snakemake_command(folder: Path, text: str, *options: str) -> list[str]:
    (folder / "Snakefile").write_text(text)
    command = [sys.executable, "-m", "snakemake", "--executor", "submitit"]
    return [*command, "--submitit-cluster", "local", "--jobs", "2", *options]


def snakemake(
    folder: Path, text: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        snakemake_command(folder, text, *options),
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def jobs_of(folder: Path) -> list[str]:
    """Processes that work there, but Snakemake's own."""
    found = []
    for process in psutil.process_iter(["cwd", "cmdline", "status"]):
        here = (process.info["cwd"] or "").startswith(str(folder))
        if here and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(" ".join(process.info["cmdline"] or []))
    return found


def test_each_try_of_a_rule_is_a_job_with_the_resources_of_that_try(tmp_path: Path):
    done = snakemake(tmp_path, RETRIED)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tries").read_text().split() == ["5", "10"]
    assert "local: 2 jobs in 2 submissions" in done.stderr


def test_immediate_submit_is_refused_in_one_line(tmp_path: Path):
    done = snakemake(tmp_path, RETRIED, "--immediate-submit", "--notemp")
    assert done.returncode == 1
    assert "--immediate-submit is not possible with this executor" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "tries").exists()


@pytest.mark.parametrize("how", ["Ctrl-C", "a job fails"])
def test_no_job_is_left_by_a_workflow_whose_lines_nobody_reads_any_more(tmp_path: Path, how: str):
    """Ctrl-C ends `| tee` too, mostly before Snakemake prints its first word on it."""
    targets = ("one",) if how == "Ctrl-C" else ("one", "other")
    command = snakemake_command(tmp_path, WAITING, *targets)
    log = (tmp_path / "log").open("wb")
    tee = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
    assert tee.stdin
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=tee.stdin,
        stderr=tee.stdin,
    )
    tee.stdin.close()
    wait_until((tmp_path / "started").exists)
    tee.send_signal(signal.SIGINT)
    tee.wait(PATIENCE_S)
    if how == "Ctrl-C":
        run.send_signal(signal.SIGINT)
    else:
        (tmp_path / "fail").touch()
    assert run.wait(PATIENCE_S) != 0
    assert jobs_of(tmp_path) == []


def test_a_declared_variable_is_in_no_command_and_in_no_file(tmp_path: Path):
    token = "s3cr3t'\"$HOME, x=y\\"
    (tmp_path / "look.py").write_text(LOOK)
    done = snakemake(tmp_path, SECRET, TOKEN=token, TOKEN_LENGTH=str(len(token)))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "found").read_text() == "[]"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"s3cr3t" in path.read_bytes()] == []
    assert "s3cr3t" not in done.stdout + done.stderr
    (run,) = (tmp_path / ".snakemake" / "submitit").glob("2*")
    assert run.stat().st_mode & 0o777 == 0o700
