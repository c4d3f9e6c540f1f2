"""The submitit executor for Grid Engine, on a real cell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import submitit
from submitit.core import core
from submitit.core.utils import DelayedSubmission, FailedJobError, UncompletedJobError

from submitit_gridengine import GridEngineJob
from tests.cluster.commands import PATIENCE_S, check
from tests.cluster.gridengine_conf import NOTIFY, QUEUE

pytestmark = pytest.mark.usefixtures("gridengine")

# A job's Python does not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Job = core.Job[Any]
S_PER_MIN = 60
LONG_S = 10 * PATIENCE_S
"""Of jobs that do not end by themselves."""


@pytest.fixture
def executor(tmp_path: Path) -> submitit.AutoExecutor:
    executor = submitit.AutoExecutor(tmp_path / "jobs", cluster="gridengine")
    executor.update_parameters(name="submitit-test", timeout_min=60)
    return executor


class Waiter:
    """Waits to be told to stop, so many times; its next run ends at once. Returns what all runs knew of themselves."""

    def __init__(self, stops: int = 1, runs: tuple[str, ...] = ()) -> None:
        self.stops = stops
        self.runs = runs

    def __call__(self) -> tuple[str, ...]:
        waits = len(self.runs) < self.stops
        self.runs = (*self.runs, f"{os.environ['JOB_ID']} restarted={os.environ['RESTARTED']}")
        print("ready", flush=True)
        while waits:
            time.sleep(0.1)
        return self.runs

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(Waiter(self.stops, self.runs))


def add(a: int, b: int) -> int:
    return a + b


def fail() -> None:
    raise ValueError("the reason")


def ignore_signals() -> None:
    import signal

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(LONG_S)


def sleep_with_a_child(pid_file: Path) -> None:
    child = subprocess.Popen(["sleep", str(LONG_S)])
    pid_file.write_text(f"{os.getpid()} {child.pid}")
    child.wait()


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE_S} s not yet: {what}"
        time.sleep(0.3)


def state(job: Job) -> str:
    return job.watcher.get_state(job.job_id, mode="force")


def wait_for_state(job: Job, *wanted: str) -> None:
    wait_for(lambda: state(job) in wanted, f"job {job.job_id} in state {wanted}")


def alive(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_result_comes_back(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(add, 1, 2)
    assert job.result() == 3
    assert "Job completed successfully" in (job.stdout() or "")
    wait_for_state(job, "COMPLETED")


def test_an_exception_comes_back(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(fail)
    with pytest.raises(FailedJobError, match="the reason"):
        job.result()
    wait_for_state(job, "FAILED")
    assert job.get_info()["Reason"] == "ended with exit status 1"


def test_logs_may_lie_in_a_folder_of_each_job(tmp_path: Path) -> None:
    executor = submitit.AutoExecutor(tmp_path / "%j", cluster="gridengine")
    single, *array = [executor.submit(add, 0, 1), *executor.map_array(add, range(2), range(2))]
    assert [job.result() for job in (single, *array)] == [1, 0, 2]
    assert single.paths.stdout.parent == tmp_path / single.job_id
    assert all(job.stdout() for job in (single, *array))


def test_an_array_takes_one_submission_and_one_query_a_round(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(gridengine_array_parallelism=4)
    jobs = executor.map_array(add, range(8), range(8))
    number = jobs[0].job_id.split("_")[0]
    assert [job.job_id for job in jobs] == [f"{number}_{task}" for task in range(1, 9)]

    assert [job.result() for job in jobs] == [2 * k for k in range(8)]
    watcher = GridEngineJob.watcher

    def states_after_one_query() -> set[str]:
        calls = watcher.num_calls
        watcher.update()
        assert watcher.num_calls <= calls + 1
        return {watcher.get_state(job.job_id, mode="cache") for job in jobs}

    wait_for(lambda: states_after_one_query() == {"COMPLETED"}, "all completed")


def test_waiting_running_and_cancelled_jobs_are_told_apart(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(gridengine_array_parallelism=1)
    running, waiting, deleted = executor.map_array(time.sleep, [LONG_S, LONG_S, LONG_S])
    deleted.cancel()
    wait_for_state(running, "RUNNING")
    assert state(waiting) == "PENDING"
    assert state(deleted) == "CANCELLED"

    GridEngineJob.cancel_jobs([running, waiting])
    for job in (running, waiting):
        wait_for_state(job, "CANCELLED")
        assert job.get_info()["Reason"] == "deleted"
    running._results_timeout_s = 0
    with pytest.raises(UncompletedJobError):
        running.result()


def test_qdel_leaves_no_process_and_does_not_requeue(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    job = executor.submit(sleep_with_a_child, pids)
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the job's processes")
    assert all(map(alive, pids.read_text().split()))

    job.cancel()
    wait_for(lambda: not any(map(alive, pids.read_text().split())), "no process of the job")
    wait_for_state(job, "CANCELLED")


@pytest.fixture
def long_notice() -> Iterator[None]:
    """From its warning to its end a deleted job has all the time that a machine under load may need."""
    change = ["qconf", "-rattr", "queue", "notify"]
    check([*change, "00:10:00", QUEUE], {})
    yield
    check([*change, NOTIFY, QUEUE], {})


@pytest.mark.usefixtures("long_notice")
def test_a_deleted_job_that_asks_to_be_requeued_stays_deleted(
    executor: submitit.AutoExecutor,
) -> None:
    job = executor.submit(Waiter())
    wait_for(lambda: "ready" in (job.stdout() or ""), "the job's first words")
    job.cancel()
    wait_for(lambda: "Leaving with status 99" in (job.stdout() or ""), "the request")
    wait_for_state(job, "CANCELLED")
    assert not subprocess.run(
        ["qstat", "-j", job.job_id], capture_output=True, check=False
    ).stdout, "Grid Engine still knows the job"


def test_a_job_over_its_limit_is_killed_and_the_reason_known(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(gridengine_timeout_min=4 / S_PER_MIN)
    executor.update_parameters(gridengine_stop_seconds=0)
    job = executor.submit(ignore_signals)
    wait_for_state(job, "TIMEOUT")
    assert job.get_info()["Reason"] == "killed after its time limit h_rt (4 s)"


def test_a_job_goes_on_after_each_of_three_limits(executor: submitit.AutoExecutor) -> None:
    # Its first seconds are for Python to come up on a machine under load.
    executor.update_parameters(gridengine_timeout_min=40 / S_PER_MIN)
    executor.update_parameters(gridengine_stop_seconds=20)
    job = executor.submit(Waiter(stops=3))
    assert job.result() == tuple(f"{job.job_id} restarted={again}" for again in (0, 1, 1, 1))
    wait_for_state(job, "COMPLETED")


def test_an_interrupted_job_checkpoints_and_goes_on(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(Waiter())
    wait_for(lambda: "ready" in (job.stdout() or ""), "the job's first words")
    job._interrupt()  # type: ignore[attr-defined]
    assert job.result() == (f"{job.job_id} restarted=0", f"{job.job_id} restarted=1")
    wait_for_state(job, "COMPLETED")


def test_a_job_that_cannot_start_fails_with_the_error_of_grid_engine(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(gridengine_extra="-wd /no/such/folder")
    job = executor.submit(add, 1, 2)
    try:
        wait_for_state(job, "FAILED")
        assert "can't chdir to /no/such/folder" in job.get_info()["Reason"]
    finally:
        job.cancel()


def test_a_parallel_job_knows_its_hosts(executor: submitit.AutoExecutor) -> None:
    def hosts() -> tuple[str, list[str], int]:
        environment = submitit.JobEnvironment()
        return environment.hostname, list(environment.hostnames), environment.num_tasks

    executor.update_parameters(
        gridengine_processes_per_node=2, gridengine_parallel_environment="smp"
    )
    hostname, hostnames, tasks = executor.submit(hosts).result()
    assert ([name.split(".")[0] for name in hostnames], tasks) == ([hostname.split(".")[0]], 1)
