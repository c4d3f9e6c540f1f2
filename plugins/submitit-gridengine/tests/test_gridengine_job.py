"""What happens inside a job: its submission file, run as Grid Engine runs it."""

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
from submitit.core.utils import DelayedSubmission

from submitit_gridengine import GridEngineExecutor, GridEngineJobEnvironment

# A job's Python does not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Job = core.Job[Any]
PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""


class Waiter:
    """Waits to be told to stop; the next run returns how many runs there were."""

    def __init__(self, started: Path, runs: int = 0) -> None:
        self.started, self.runs = started, runs

    def __call__(self) -> int:
        self.started.touch()
        while not self.runs:
            time.sleep(0.05)
        return self.runs + 1

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(Waiter(self.started, self.runs + 1))


@pytest.fixture
def submit(tmp_path: Path, answer: Callable[[str, str], None]) -> Callable[..., Job]:
    def submit(function: Callable[..., Any]) -> Job:
        answer("qsub", "55")
        executor = GridEngineExecutor(tmp_path / "jobs")
        executor.update_parameters(timeout_min=60)
        return executor.submit(function)

    return submit


def start(job: Job, **environment: str) -> subprocess.Popen[bytes]:
    own = {"JOB_ID": "55", "SGE_TASK_ID": "undefined"}
    return subprocess.Popen(
        ["/bin/bash", str(job.paths.submission_file)],
        env=os.environ | own | environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"waited for {file}"
        time.sleep(0.05)


def test_a_job_gives_its_result(submit: Callable[..., Job]) -> None:
    job = submit(lambda: 7)
    assert start(job).wait(PATIENCE_S) == 0
    assert job.result() == 7


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_a_stopped_job_asks_to_be_requeued(
    submit: Callable[..., Job], tmp_path: Path, number: signal.Signals
) -> None:
    job = submit(Waiter(tmp_path / "started"))
    process = start(job)
    wait_for(tmp_path / "started")
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 99
    assert not job.paths.result_pickle.exists()

    assert start(job, RESTARTED="1").wait(PATIENCE_S) == 0
    assert job.result() == 2


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> GridEngineJobEnvironment:
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "gridengine")
    monkeypatch.setenv("JOB_ID", "55")
    monkeypatch.setenv("SGE_TASK_ID", "undefined")
    environment = plugins.get_job_environment()
    assert isinstance(environment, GridEngineJobEnvironment)
    return environment


def test_a_task_of_an_array_has_submitits_id(
    inside: GridEngineJobEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside.job_id == "55"
    monkeypatch.setenv("SGE_TASK_ID", "3")
    assert inside.job_id == "55_3"


def test_a_parallel_job_is_one_task_that_knows_all_hosts(
    inside: GridEngineJobEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert inside.hostnames == [inside.hostname]
    hosts = tmp_path / "hosts"
    hosts.write_text("node2 4 all.q@node2 UNDEFINED\nnode1 4 all.q@node1 UNDEFINED\n")
    monkeypatch.setenv("PE_HOSTFILE", str(hosts))
    monkeypatch.setenv("NHOSTS", "2")
    assert inside.hostnames == ["node2", "node1"]
    assert (inside.num_nodes, inside.num_tasks, inside.global_rank) == (2, 1, 0)
