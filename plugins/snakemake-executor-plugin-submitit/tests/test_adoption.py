import os
from pathlib import Path
from typing import Any

import pytest
from fakes import RUNNING, UNKNOWN, FakeCluster, FakeJob, Logger, SnakemakeJob

from snakemake_executor_plugin_submitit.adoption import Adopter
from snakemake_executor_plugin_submitit.command import NestedCommand
from snakemake_executor_plugin_submitit.registry import FILE_NAME, Entry, Identity, Registry
from snakemake_executor_plugin_submitit.resources import Allocation
from snakemake_executor_plugin_submitit.settings import ExecutorSettings
from snakemake_executor_plugin_submitit.submission import Request


def request(**of_job: Any) -> Request:
    job: Any = SnakemakeJob(**of_job)
    allocation = Allocation.of(job, ExecutorSettings(cluster="slurm"))
    return Request(job, allocation, NestedCommand("true", "/", 1, 60), Identity.of(job, allocation))


class Restart:
    """A workflow after one that submitted `earlier` as job 7 and was killed."""

    def __init__(self, folder: Path, earlier: Request) -> None:
        self.folder = folder
        Registry(folder, "fake").add([Entry("fake", "7", str(folder), earlier.identity)])
        self.cluster, self.logger = FakeCluster(), Logger()
        self.job = FakeJob(folder, "7")
        self.adopted: list[str] = []

    def remaining(self, request: Request, *, finished_too: bool = True) -> int:
        adopter = Adopter(
            Registry(self.folder, "fake"),
            self.cluster,  # type: ignore[arg-type]
            self.logger,  # type: ignore[arg-type]
            lambda pairs: self.adopted.extend(job.job_id for _, job in pairs),
            finished_too=finished_too,
        )
        return len(adopter.remaining([request]))


def test_a_job_that_still_runs_is_taken_back(tmp_path: Path):
    restart = Restart(tmp_path, request())
    assert restart.remaining(request(jobid=9)) == 0
    assert restart.adopted == ["7"]
    assert restart.cluster.cancelled == []


def test_a_job_that_finished_meanwhile_is_taken_back(tmp_path: Path):
    made = str(tmp_path / "made")
    Path(made).touch()
    restart = Restart(tmp_path, request(output=(made,)))
    restart.job.finish()
    assert restart.remaining(request(output=(made,))) == 0


def test_a_finished_job_does_not_replace_one_that_is_forced(tmp_path: Path):
    made = str(tmp_path / "made")
    Path(made).touch()
    restart = Restart(tmp_path, request(output=(made,)))
    restart.job.finish()
    assert restart.remaining(request(output=(made,)), finished_too=False) == 1


def test_a_finished_job_whose_output_is_gone_runs_again(tmp_path: Path):
    restart = Restart(tmp_path, request())
    restart.job.finish()
    assert restart.remaining(request()) == 1


def test_a_job_that_failed_meanwhile_is_submitted_again(tmp_path: Path):
    restart = Restart(tmp_path, request())
    restart.job.finish("error", "ValueError: x")
    assert restart.remaining(request()) == 1
    assert Registry(tmp_path, "fake").take(request().identity) is None


def test_a_job_that_nobody_knows_any_more_is_submitted_again(tmp_path: Path):
    restart = Restart(tmp_path, request())
    restart.cluster.states["7"] = UNKNOWN
    assert restart.remaining(request()) == 1


def test_a_job_that_only_the_second_answer_lists_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    restart = Restart(tmp_path, request())
    answers = [UNKNOWN, RUNNING]
    monkeypatch.setattr(restart.cluster, "state", lambda job: answers.pop(0))
    assert restart.remaining(request()) == 0


def test_a_scheduler_that_does_not_answer_gets_no_second_job(tmp_path: Path):
    restart = Restart(tmp_path, request())
    restart.cluster.states["7"] = UNKNOWN
    restart.cluster.answers = False
    assert restart.remaining(request()) == 0


@pytest.mark.parametrize(
    "changed", [{"command": "other"}, {"resources": {"runtime": 5}}, {"input": ("in",)}]
)
def test_a_running_job_that_does_something_else_is_cancelled(
    tmp_path: Path, changed: dict[str, Any]
):
    restart = Restart(tmp_path, request())
    assert restart.remaining(request(**changed)) == 1
    assert restart.cluster.cancelled == ["7"]


def test_a_running_job_on_input_that_was_rewritten_is_cancelled(tmp_path: Path):
    data = tmp_path / "data"
    data.touch()
    restart = Restart(tmp_path, request(input=(str(data),)))
    os.utime(data, (2**33, 2**33))
    assert restart.remaining(request(input=(str(data),))) == 1
    assert restart.cluster.cancelled == ["7"]


def test_a_job_whose_end_was_seen_is_forgotten(tmp_path: Path):
    restart = Restart(tmp_path, request())
    Registry(tmp_path, "fake").settle(["7"])
    assert restart.remaining(request()) == 1
    assert restart.cluster.cancelled == []


def test_jobs_of_another_cluster_are_not_taken(tmp_path: Path):
    Restart(tmp_path, request())
    assert Registry(tmp_path, "slurm").take(request().identity) is None


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path):
    Restart(tmp_path, request())
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"cluster": "fa')
    assert Registry(tmp_path, "fake").take(request().identity) is not None


def test_compacting_keeps_what_is_open(tmp_path: Path):
    registry = Registry(tmp_path, "fake")
    registry.add(
        Entry("fake", name, str(tmp_path), Identity(name, name)) for name in ("1", "2", "3")
    )
    registry.settle(["1", "3"])
    registry.compact()
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) == 1
    assert Registry(tmp_path, "fake").take(Identity("2", "2")) is not None
