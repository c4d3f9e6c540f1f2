import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeCluster, FakeExecutor, FakeJob, Logger, SnakemakeJob
from submitit.core.utils import FailedJobError

from snakemake_executor_plugin_submitit import refusals, submission
from snakemake_executor_plugin_submitit.command import NestedCommand
from snakemake_executor_plugin_submitit.registry import Identity
from snakemake_executor_plugin_submitit.resources import Allocation
from snakemake_executor_plugin_submitit.settings import ExecutorSettings
from snakemake_executor_plugin_submitit.submission import Request, Submitter

PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""
BUSY = FailedJobError("sbatch: error: Socket timed out on send/recv operation")
REFUSED = FailedJobError("sbatch: error: invalid account or account/partition combination")


class Bench:
    """A submitter with a fake cluster, and what it reported."""

    def __init__(self, folder: Path, errors: list[Exception | None] | None = None) -> None:
        self.cluster = FakeCluster()
        self.cluster.errors = errors or []
        self.logger = Logger()
        self.submitted: list[str] = []
        self.failed: list[str] = []
        self.crashes: list[Exception] = []
        self.submitter = Submitter(
            self.cluster,  # type: ignore[arg-type]
            folder,
            self.logger,  # type: ignore[arg-type]
            take_back=lambda requests: requests,
            on_submitted=lambda pairs: self.submitted.extend(job.job_id for _, job in pairs),
            on_failed=lambda request, words: self.failed.append(words),
            on_crash=self.crashes.append,
            retry_seconds=(0.01, 0.01),
        )

    def submit(self, *runtimes: int) -> None:
        self.submitter.submit([request(runtime) for runtime in runtimes])
        self.submitter.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(self.submitted) + len(self.failed) < len(runtimes):
            assert time.monotonic() < deadline
            assert not self.crashes
            time.sleep(0.005)
        self.submitter.stop()


def request(runtime: int = 1) -> Request:
    job = SnakemakeJob(resources={"runtime": runtime})
    allocation = Allocation.of(job, ExecutorSettings(cluster="slurm"))  # type: ignore[arg-type]
    return Request(job, allocation, NestedCommand("true", "/", 1, 60), Identity("o", "w"))  # type: ignore[arg-type]


def test_jobs_of_one_shape_share_an_array(tmp_path: Path):
    bench = Bench(tmp_path)
    bench.submit(1, 2, 1, 2, 1)
    assert bench.cluster.attempts == [3, 2]


def test_arrays_are_no_larger_than_the_scheduler_allows(tmp_path: Path):
    bench = Bench(tmp_path)
    bench.cluster.array_limit = 2
    bench.submit(1, 1, 1, 1, 1)
    assert bench.cluster.attempts == [2, 2, 1]


def test_a_busy_scheduler_is_asked_again(tmp_path: Path):
    bench = Bench(tmp_path, [BUSY, BUSY])
    bench.submit(1, 1)
    assert bench.cluster.attempts == [2, 2, 2]
    assert bench.failed == []


def test_patience_has_an_end(tmp_path: Path):
    bench = Bench(tmp_path, [BUSY] * 9)
    bench.submit(1)
    assert bench.cluster.attempts == [1, 1, 1]
    assert "Socket timed out" in bench.failed[0]


def test_a_refused_job_fails_at_once_with_the_words_of_the_scheduler(tmp_path: Path):
    bench = Bench(tmp_path, [REFUSED])
    bench.submit(1)
    assert bench.cluster.attempts == [1]
    assert bench.failed == ["sbatch: error: invalid account or account/partition combination"]


def test_a_refused_array_is_tried_job_by_job(tmp_path: Path):
    bench = Bench(tmp_path, [REFUSED, None, REFUSED])
    bench.submit(1, 1, 1)
    assert bench.cluster.attempts == [3, 1, 1, 1]
    assert (len(bench.submitted), len(bench.failed)) == (2, 1)
    assert not bench.submitter._refused, "a shape of which two jobs were taken"


def test_a_shape_that_is_refused_is_asked_for_once_and_not_once_a_job(tmp_path: Path):
    bench = Bench(tmp_path, [REFUSED] * 9)
    bench.submit(*[1] * 200)
    assert bench.cluster.attempts == [200, 1]
    assert len(bench.failed) == 200
    bench = Bench(tmp_path, [REFUSED])
    for runtime in (1, 1, 2):
        bench.submitter._submit_alike([request(runtime)])
    assert (len(bench.failed), len(bench.submitted)) == (2, 1)
    assert bench.cluster.attempts == [1, 1]


def test_a_refused_shape_is_asked_for_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bench = Bench(tmp_path, [REFUSED])
    bench.submitter._submit_alike([request()])
    later_s = time.monotonic() + submission.REFUSED_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    bench.submitter._submit_alike([request()])
    assert bench.cluster.attempts == [1, 1]


class Limited(FakeCluster):
    """It takes at most `limit` jobs at a time; one of them ends while somebody waits."""

    def __init__(self, limit: int, open_jobs: list[str]) -> None:
        super().__init__()
        self.limit = limit
        self.open_jobs = open_jobs

    def executor(self, folder: Path, allocation: object) -> FakeExecutor:
        return LimitedExecutor(self, folder)


class LimitedExecutor(FakeExecutor):
    cluster: Limited

    def submit_array(self, commands: list[Any]) -> list[FakeJob]:
        if len(commands) + len(self.cluster.open_jobs) > self.cluster.limit:
            self.cluster.attempts.append(-len(commands))
            raise LIMIT
        jobs = super().submit_array(commands)
        self.cluster.open_jobs += [job.job_id for job in jobs]
        return jobs


LIMIT = FailedJobError(
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
    "accounting/QOS policy (job submit limit, user's size and/or time limits)"
)


def test_more_jobs_than_the_site_allows_are_submitted_as_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bench = Bench(tmp_path)
    open_jobs: list[str] = []
    limited = Limited(5, open_jobs)
    bench.cluster = bench.submitter._cluster = limited
    bench.submitter._open_jobs = lambda: len(open_jobs)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        del open_jobs[0]
        return False

    monkeypatch.setattr(bench.submitter._stopped, "wait", wait)
    bench.submit(*[1] * 8)
    assert (len(bench.submitted), bench.failed) == (8, [])
    assert limited.attempts == [-8, 4, -4, -2, 1, -2, -1, 1, -2, -1, 1, -1, 1]
    assert waits == [submission.LIMIT_SECONDS] * 3
    assert len(bench.logger.lines) == 1
    assert "with 5 of this workflow submitted: sbatch: error: QOSMaxSubmit" in bench.logger.lines[0]
    assert "`--jobs`" in bench.logger.lines[0]


def test_a_limit_with_nothing_of_the_workflow_to_wait_for_is_a_refusal_in_the_end(tmp_path: Path):
    bench = Bench(tmp_path, [LIMIT] * 9)
    bench.submit(1)
    assert bench.cluster.attempts == [1, 1, 1]
    assert "QOSMaxSubmitJobPerUserLimit" in bench.failed[0]
    assert not bench.submitter._refused


@pytest.mark.parametrize(
    "words",
    [
        "Unable to run job: job rejected: Only 5 jobs are allowed per user (current job count: 5).",
        "qsub: would exceed complex's per-user limit",
        "qsub: would exceed queue generic's per-user limit",
        "qsub: Maximum number of jobs already in queue for user",
        "sbatch: error: Batch job submission failed: Reached the max submit job limit",
        "sbatch: error: AssocMaxSubmitJobLimit",
        "sbatch: error: AssocGrpSubmitJobsLimit",
    ],
)
def test_the_words_of_a_limit(words: str):
    assert refusals.is_limit(words)
    assert not refusals.is_passing(words)


@pytest.mark.parametrize(
    "words",
    [
        "qsub: Pbs Server is currently too busy to service this request. Please retry this request.",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.",
        "sbatch: error: Batch job submission failed: Slurm controller not responding, sleeping",
        "sbatch: error: Slurm controller not responding, sleeping and retrying.",
        "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "qsub: Connection timed out",
        "error: commlib error: got select error (Connection refused)",
        "Unable to run job: unable to send message to qmaster using port 6444",
        "qsub: cannot connect to server pbs (errno=15010)",
    ],
)
def test_the_words_of_what_passes(words: str):
    assert refusals.is_passing(words)
    assert not refusals.is_limit(words)


@pytest.mark.parametrize(
    "words",
    [
        "Unavailable parameter(s): ['x']: valid are timeout_min (default: 5)",
        "sbatch: error: Unable to open file /home/ada/timed out/job.sh",
        "sbatch: error: Unable to open file /home/ada/end of file/job.sh",
        "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
        "sbatch: error: invalid partition specified: nowhere",
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
        "user's size and/or time limits)",
        "qsub: Job exceeds queue and/or server resource limits",
    ],
)
def test_the_words_of_a_refusal(words: str):
    assert not refusals.is_passing(words)
    assert not refusals.is_limit(words)


def test_stopping_ends_the_wait_for_a_busy_scheduler(tmp_path: Path):
    bench = Bench(tmp_path, [BUSY] * 9)
    bench.submitter._retry_seconds = (10 * PATIENCE_S,)
    bench.submitter.submit([request()])
    bench.submitter.start()
    while not bench.cluster.attempts:
        time.sleep(0.005)
    stopping = threading.Thread(target=bench.submitter.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    assert (bench.submitted, bench.failed) == ([], [])


def test_a_program_that_submits_has_a_session_of_its_own():
    """Ctrl-C in a terminal would end it, and nobody would learn the id of its job."""
    executor = SimpleNamespace(_make_submission_command=lambda path: ["sbatch", str(path)])
    submission._detach(executor)
    assert executor._make_submission_command(Path("script")) == ["setsid", "sbatch", "script"]


def test_an_unexpected_error_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bench = Bench(tmp_path, [KeyError("bug")])
    bench.submitter.submit([request()])
    bench.submitter.start()
    bench.submitter._thread.join(PATIENCE_S)
    assert [type(error) for error in bench.crashes] == [KeyError]
