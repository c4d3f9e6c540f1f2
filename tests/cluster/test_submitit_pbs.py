"""The submitit executor for PBS, on a real server with two execution hosts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import submitit
from submitit.core import core
from submitit.core.utils import DelayedSubmission

from submitit_pbs import PbsInfoWatcher, PbsJob
from tests.cluster.commands import PATIENCE_S, check
from tests.cluster.pbs import Pbs
from tests.cluster.pbs_conf import CPUS_PER_NODE, NODES, QUEUE
from tests.cluster.pbs_user import PYTHON, path_with

pytestmark = pytest.mark.usefixtures("pbs_client")

# A job's Python does not import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Job = core.Job[Any]
S_PER_MIN = 60
LONG_S = 10 * PATIENCE_S
"""Of jobs that do not end by themselves."""


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> PbsInfoWatcher:
    """A watcher that knows of no other test's jobs."""
    fresh = PbsInfoWatcher()
    monkeypatch.setattr(PbsJob, "watcher", fresh)
    return fresh


@pytest.fixture
def executor(tmp_path: Path) -> submitit.AutoExecutor:
    return made(tmp_path / "jobs")


def made(folder: Path) -> submitit.AutoExecutor:
    executor = submitit.AutoExecutor(folder, cluster="pbs")
    executor.update_parameters(name="submitit-test", timeout_min=60, pbs_python=PYTHON)
    return executor


class Waiter:
    """Waits to be told to stop. Its next run ends at once, and returns PBS's ids of both."""

    def __init__(self, ids: tuple[str, ...] = ()) -> None:
        self.ids = ids

    def __call__(self) -> tuple[str, ...]:
        first = not self.ids
        self.ids = (*self.ids, os.environ["PBS_JOBID"].split(".")[0])
        print("ready", flush=True)
        while first:
            time.sleep(0.1)
        return self.ids

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(Waiter(self.ids))


def add(a: int, b: int) -> int:
    return a + b


def fail() -> None:
    raise ValueError("the reason")


def ignore_signals() -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(LONG_S)


def hosts() -> list[str]:
    return list(submitit.JobEnvironment().hostnames)


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE_S} s not yet: {what}"
        time.sleep(0.3)


def state(job: Job) -> str:
    return job.watcher.get_state(job.job_id, mode="force")


def wait_for_state(job: Job, *wanted: str) -> None:
    wait_for(lambda: state(job) in wanted, f"job {job.job_id} in state {wanted}")


def wait_until_ready(job: Job) -> None:
    wait_for(lambda: "ready" in (job.stdout() or ""), f"job {job.job_id} is ready")


def test_results_exceptions_and_logs_come_back(executor: submitit.AutoExecutor) -> None:
    good, bad = executor.submit(add, 1, 2), executor.submit(fail)
    assert good.result() == 3
    assert "Job completed successfully" in (good.stdout() or "")
    assert "ValueError: the reason" in str(bad.exception())
    wait_for_state(good, "COMPLETED")
    wait_for_state(bad, "FAILED")
    assert "ended with exit status 1" in bad.get_info()["Reason"]


def test_every_subjob_of_two_arrays_is_told_apart_by_one_question(
    executor: submitit.AutoExecutor, watcher: PbsInfoWatcher
) -> None:
    """`qstat -F json` lists the subjobs of the first array only."""
    jobs = [
        *executor.map_array(add, [1, 2], [3, 4]),
        *executor.map_array(time.sleep, [LONG_S, LONG_S]),
    ]
    assert [job.result() for job in jobs[:2]] == [4, 6]
    wait_for(
        lambda: [state(job) for job in jobs] == 2 * ["COMPLETED"] + 2 * ["RUNNING"],
        "two that have ended and two that run",
    )
    calls = watcher.num_calls
    watcher.update()
    assert watcher.num_calls == calls + 1
    PbsJob.cancel_jobs(jobs[2:])
    for job in jobs[2:]:
        wait_for_state(job, "CANCELLED")


def test_a_waiting_subjob_that_somebody_deletes_is_cancelled(
    executor: submitit.AutoExecutor,
) -> None:
    """PBS itself calls it ended with exit status 0."""
    executor.update_parameters(pbs_array_parallelism=1)
    running, waiting = executor.map_array(time.sleep, [LONG_S, LONG_S])
    wait_for_state(running, "RUNNING")
    assert state(waiting) == "PENDING"
    number = running.job_id.split("_")[0]
    check(["qdel", f"{number}[1]"], {})
    wait_for_state(waiting, "CANCELLED")
    running.cancel()
    wait_for_state(running, "CANCELLED")


def test_a_job_told_with_qsig_checkpoints_and_its_manager_has_it_requeued(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    executor.update_parameters(pbs_setup=[path_with(tmp_path / "bin", "qrerun")])
    job = executor.submit(Waiter())
    wait_until_ready(job)
    check(["qsig", "-s", "USR2", job.job_id], {})
    assert job.result() == (job.job_id, job.job_id)
    wait_for_state(job, "COMPLETED")


def test_a_job_whose_user_may_not_requeue_it_goes_on_as_another(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    executor.update_parameters(pbs_setup=[path_with(tmp_path / "bin", "qsub")])
    job = executor.submit(Waiter())
    wait_until_ready(job)
    job._interrupt()  # type: ignore[attr-defined]
    first, second = job.result()
    assert first == job.job_id != second
    assert "qrerun: Unauthorized Request" in (job.stdout() or "")
    wait_for_state(job, "COMPLETED")


def test_a_job_stops_before_its_time_limit_and_goes_on(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    executor.update_parameters(pbs_setup=[path_with(tmp_path / "bin", "qrerun")])
    executor.update_parameters(pbs_timeout_min=40 / S_PER_MIN, pbs_stop_seconds=20)
    job = executor.submit(Waiter())
    assert len(job.result()) == 2


def test_a_job_over_its_time_limit_is_killed_and_the_reason_known(
    executor: submitit.AutoExecutor,
) -> None:
    executor.update_parameters(pbs_timeout_min=2 / S_PER_MIN, pbs_stop_seconds=0)
    job = executor.submit(ignore_signals)
    wait_for_state(job, "TIMEOUT")
    assert "time limit (walltime)" in job.get_info()["Reason"]


def test_a_deleted_job_has_time_to_checkpoint(executor: submitit.AutoExecutor, pbs: Pbs) -> None:
    pbs.manage(f"set queue {QUEUE} kill_delay={PATIENCE_S}")
    executor.update_parameters(pbs_queue=QUEUE)
    job = executor.submit(Waiter())
    wait_until_ready(job)
    check(["qdel", job.job_id], {})
    wait_for_state(job, "CANCELLED")
    function = job.submission().function
    assert isinstance(function, Waiter)
    assert function.ids == (job.job_id,)
    pbs.manage(f"unset queue {QUEUE} kill_delay")


def test_without_history_waiting_and_running_jobs_are_not_called_failed(
    executor: submitit.AutoExecutor, pbs: Pbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PbsInfoWatcher, "unknown_s", 0)
    pbs.manage("set server job_history_enable=false")
    try:
        running = executor.submit(Waiter())
        wait_until_ready(running)
        executor.update_parameters(cpus_per_task=2 * CPUS_PER_NODE)
        waiting = executor.submit(add, 1, 2)
        assert state(running) == "RUNNING"
        assert state(waiting) == "PENDING"
        executor.update_parameters(cpus_per_task=1)
        ended = executor.submit(add, 1, 2)
        assert ended.result() == 3
        wait_for_state(ended, "COMPLETED")
    finally:
        pbs.manage("set server job_history_enable=true")
    PbsJob.cancel_jobs([running, waiting])


def test_a_job_that_can_never_run_says_why(executor: submitit.AutoExecutor) -> None:
    # More than all hosts have: of what only each of them lacks, PBS says that it is not there now.
    executor.update_parameters(cpus_per_task=3 * CPUS_PER_NODE)
    job = executor.submit(add, 1, 2)
    words = "Can Never Run: Insufficient amount of resource: ncpus"
    wait_for(lambda: state(job) == "PENDING" and words in job.get_info()["Reason"], words)
    assert "Can Never Run" in check(["qstat", "-s", job.job_id], {})
    job.cancel()


def test_several_nodes_are_several_hosts(executor: submitit.AutoExecutor) -> None:
    """A computed selection of two small chunks would fit on one."""
    executor.update_parameters(nodes=2)
    assert sorted(executor.submit(hosts).result()) == list(NODES)


def test_a_folder_may_have_a_space_in_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    executor = made(tmp_path / "with a space" / "jobs")
    job = executor.submit(add, 1, 2)
    assert job.result() == 3
    wait_for_state(job, "COMPLETED")
    wait_for(lambda: list(job.paths.folder.glob(f"{job.job_id}*.OU")), "PBS's own messages")
