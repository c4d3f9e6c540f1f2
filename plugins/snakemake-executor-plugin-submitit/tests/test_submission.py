import threading
import time
from pathlib import Path

import pytest
from fakes import FakeCluster, Logger, SnakemakeJob
from submitit.core.utils import FailedJobError

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
        self.submitted: list[str] = []
        self.failed: list[str] = []
        self.crashes: list[Exception] = []
        self.submitter = Submitter(
            self.cluster,  # type: ignore[arg-type]
            folder,
            Logger(),  # type: ignore[arg-type]
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
    return Request(job, allocation, NestedCommand("true", "/", 1), Identity("o", "w"))  # type: ignore[arg-type]


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


def test_an_unexpected_error_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bench = Bench(tmp_path, [KeyError("bug")])
    bench.submitter.submit([request()])
    bench.submitter.start()
    bench.submitter._thread.join(PATIENCE_S)
    assert [type(error) for error in bench.crashes] == [KeyError]
