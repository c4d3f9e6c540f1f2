"""What happens inside a job: its submission file, run as PBS runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from submitit.core import core, plugins
from submitit.core.utils import DelayedSubmission, FailedSubmissionError, pickle_load

from submitit_pbs import PbsExecutor, PbsInfoWatcher, PbsJobEnvironment, follow_on, shell

# A job's Python does not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Job = core.Job[Any]
Programs = Callable[..., Path]
PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""


class Waiter:
    """Waits to be told to stop; the next run returns how many runs there were."""

    def __init__(self, started: Path, runs: int = 0) -> None:
        self.started, self.runs = started, runs

    def __call__(self) -> int:
        self.started.write_text(os.environ["SUBMITIT_PBS_RESTARTED"])
        while not self.runs:
            time.sleep(0.05)
        return self.runs + 1

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(Waiter(self.started, self.runs + 1))


def executor(tmp_path: Path, limit_s: float = 3600) -> PbsExecutor:
    made = PbsExecutor(tmp_path / "jobs")
    made.update_parameters(timeout_min=limit_s / 60)
    return made


def start(script: str, pbs_id: str, tmp_path: Path, **environment: str) -> subprocess.Popen[bytes]:
    own = {"PBS_JOBID": pbs_id, "PBS_O_WORKDIR": str(tmp_path)}
    return subprocess.Popen(
        ["/bin/bash", "-c", script], env=os.environ | own | environment, cwd="/"
    )


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"no {file}"
        time.sleep(0.05)


def test_a_subjob_gives_its_result_and_logs(tmp_path: Path, programs: Programs) -> None:
    programs("qsub", "77[].pbs1")
    job = executor(tmp_path).map_array(abs, [-5, -6])[1]
    assert (
        start(job.paths.submission_file.read_text(), "77[1].pbs1", tmp_path).wait(PATIENCE_S) == 0
    )
    assert job.result() == 6
    assert job.paths.stdout == tmp_path / "jobs" / "77_1_0_log.out"
    assert "Job completed successfully" in (job.stdout() or "")


def test_near_its_limit_a_job_goes_on_as_another_with_the_same_id_for_submitit(
    tmp_path: Path, programs: Programs, watcher: PbsInfoWatcher
) -> None:
    programs("qsub", "77[].pbs1")
    functions: list[Callable[[], Any]] = [Waiter(tmp_path / "started"), print]
    job, _ = executor(tmp_path, limit_s=12).submit_array(functions)
    programs("qrerun", status=159, complains="qrerun: Unauthorized Request")
    submitted = programs("qsub", "90.pbs1")
    script = job.paths.submission_file.read_text()

    process = start(script, "77[0].pbs1", tmp_path)
    assert process.wait(PATIENCE_S) != 0
    assert not job.paths.result_pickle.exists()
    calls = (tmp_path / "calls").read_text().splitlines()
    # No -v, which would take the place of one in the file.
    assert [call.strip() for call in calls[-2:]] == ["qrerun 77[0].pbs1", "qsub"]
    programs("qstat")
    watcher.update()
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "qstat -x -t -f -F dsv 77[] 90"

    follow_on = submitted.read_text()
    assert follow_on.replace("SUBMITIT_PBS_FOLLOWS=77_0\n", "") == script.replace(
        "#PBS -J 0-1\n", ""
    )
    assert start(follow_on, "90.pbs1", tmp_path).wait(PATIENCE_S) == 0
    assert job.result() == 2


def test_a_job_that_a_node_may_not_submit_again_says_so_in_the_words_of_pbs(
    tmp_path: Path, programs: Programs
) -> None:
    programs("qsub", "77.pbs1")
    job = executor(tmp_path).submit(Waiter(tmp_path / "started"))
    programs("qrerun", status=159, complains="qrerun: Unauthorized Request 77.pbs1")
    programs("qsub", status=188, complains="qsub: Bad UID for job execution")
    process = start(job.paths.submission_file.read_text(), "77.pbs1", tmp_path)
    wait_for(tmp_path / "started")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(PATIENCE_S) != 0
    kind, trace = pickle_load(job.paths.result_pickle)
    last = trace.strip().splitlines()[-1]
    assert kind == "error"
    assert "(qrerun: Unauthorized Request 77.pbs1; qsub: Bad UID for job execution)" in last
    assert "Request a longer time limit, or ask the site to allow qsub on " in last
    (tmp_path / "programs" / "qrerun").unlink()
    with pytest.raises(FailedSubmissionError, match="qrerun: No such file or directory on this"):
        follow_on.ask(["qrerun"])


def test_a_job_that_may_is_requeued(tmp_path: Path, programs: Programs) -> None:
    programs("qsub", "77.pbs1")
    job = executor(tmp_path).submit(Waiter(tmp_path / "started"))
    programs("qrerun")
    process = start(job.paths.submission_file.read_text(), "77.pbs1", tmp_path)
    wait_for(tmp_path / "started")
    assert (tmp_path / "started").read_text() == "0"
    process.send_signal(signal.SIGUSR2)
    assert process.wait(PATIENCE_S) != 0
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "qrerun 77.pbs1"
    assert start(job.paths.submission_file.read_text(), "77.pbs1", tmp_path).wait(PATIENCE_S) == 0
    assert job.result() == 2
    assert (tmp_path / "started").read_text() == "1"


def test_a_job_that_pbs_ends_checkpoints_and_asks_for_nothing(
    tmp_path: Path, programs: Programs
) -> None:
    programs("qsub", "77.pbs1")
    job = executor(tmp_path).submit(Waiter(tmp_path / "started"))
    process = start(job.paths.submission_file.read_text(), "77.pbs1", tmp_path)
    wait_for(tmp_path / "started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) != 0
    assert [call.split()[0] for call in (tmp_path / "calls").read_text().splitlines()] == ["qsub"]
    function = job.submission().function
    assert isinstance(function, Waiter)
    assert function.runs == 1


def test_a_job_that_ended_while_it_was_asked_for_is_not_taken_for_lost(
    tmp_path: Path, programs: Programs, watcher: PbsInfoWatcher, data: Path
) -> None:
    programs("qsub", "306.pbs1")
    job = executor(tmp_path).submit(print)
    programs("qstat")
    register = job.paths.folder / "306_pbs_ids.txt"
    (tmp_path / "programs" / "qstat").write_text(
        f"#!/bin/sh\necho 307 > {register}\ncat {data / 'qstat.dsv'}\n"
    )
    assert watcher.get_state("306", mode="force") == "REQUEUED"
    watcher.update()
    assert watcher.get_state("306", mode="cache") == "TIMEOUT"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> PbsJobEnvironment:
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "pbs")
    monkeypatch.setenv("SUBMITIT_PBS_JOB_ID", "55")
    environment = plugins.get_job_environment()
    assert isinstance(environment, PbsJobEnvironment)
    return environment


def test_a_job_knows_its_id_and_its_hosts(
    inside: PbsJobEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (inside.job_id, inside.hostnames) == ("55", [inside.hostname])
    monkeypatch.setenv("SUBMITIT_PBS_JOB_ID", "55_0")
    assert (inside.job_id, inside.array_job_id, inside.array_task_id) == ("55_0", "55", "0")

    (tmp_path / "nodes").write_text("node2\nnode2\nnode1\nnode1\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    assert inside.hostnames == ["node2", "node1"]
    assert (inside.num_nodes, inside.num_tasks, inside.global_rank) == (2, 1, 0)


def test_a_script_runs_with_no_shell_above_it_that_a_signal_would_end(tmp_path: Path) -> None:
    shell.write(tmp_path)
    script = tmp_path / "2[0].pbs1.SC"
    script.write_text("trap 'echo told; exit 3' USR2; echo $$; while :; do sleep 0.1; done\n")
    process = subprocess.Popen(
        [shell.path(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"HOME": str(tmp_path)},
        text=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{tmp_path}/2\\[0\\].pbs1.SC\n")
    process.stdin.flush()
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(signal.SIGUSR2)
    assert process.communicate(timeout=PATIENCE_S)[0] == "told\n"
    assert process.returncode == 3


def test_the_shell_of_a_job_runs_what_programs_hand_to_it(tmp_path: Path) -> None:
    """Those that start commands by `$SHELL -c`: GNU parallel, tmux, ssh."""
    shell.write(tmp_path)
    script = tmp_path / "2.pbs1.SC"
    script.write_text("\"$SHELL\" -c 'echo heard'\n")
    own = {"HOME": str(tmp_path), "SHELL": str(shell.path(tmp_path))}
    done = subprocess.run(
        [shell.path(tmp_path)],
        input=f"{script}\n",
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "heard\n"


def test_the_shell_is_written_once_and_mended_by_a_rename(tmp_path: Path) -> None:
    shell.write(tmp_path)
    program = shell.path(tmp_path)
    first = program.stat().st_ino
    shell.write(tmp_path)
    assert program.stat().st_ino == first
    with program.open("a") as damaged:
        damaged.write("exit 1\n")
        damaged.flush()
        shell.write(tmp_path)
    assert program.read_text() == shell.TEXT
    assert os.access(program, os.X_OK)
    assert list(tmp_path.iterdir()) == [program]
