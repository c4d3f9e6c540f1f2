"""A job that ended well and left nothing is a failed one: a node that sees no input says that nothing is to do."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from snakemake_executor_plugin_submitit.executor import Executor
from snakemake_executor_plugin_submitit.status import Outcome


class Output(str):
    """A file of a rule as Snakemake hands it over."""

    flags: dict[str, Any]

    def __new__(cls, path: Path, *flags: str) -> "Output":
        output = super().__new__(cls, path)
        output.flags = dict.fromkeys(flags, True)
        return output


class Ended:
    """An executor whose jobs have all ended well, and a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, jobs: list[Any], *, shared: bool) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        usage = {SharedFSUsage.INPUT_OUTPUT} if shared else set()
        self.executor: Any = object.__new__(Executor)
        self.executor.workflow = SimpleNamespace(
            storage_settings=SimpleNamespace(shared_fs_usage=usage),
            execution_settings=SimpleNamespace(latency_wait=20),
            scheduler=None,
        )
        self.executor.logger = SimpleNamespace()
        self.executor._cluster = SimpleNamespace(name="slurm")
        paths = SimpleNamespace(stderr=Path("/none/err"), stdout=Path("/none/out"))
        self.infos = []
        self.executor._ended = {}
        for number, job in enumerate(jobs):
            submitted: Any = SimpleNamespace(job_id=str(number), paths=paths)
            self.infos.append(SubmittedJobInfo(job, external_jobid=str(number)))
            self.executor._ended[str(number)] = (Outcome(submitted, None), 20.0)
        self.errors: list[str] = []
        self.executor.report_job_success = lambda info: None
        self.executor.report_job_error = lambda info, msg, **_: self.errors.append(msg)

    def round(self, now_s: float) -> int:
        """How many jobs are told at this time."""
        self.now_s = now_s
        told = [info for info in self.infos if self.executor._report(info)]
        self.infos = [info for info in self.infos if info not in told]
        return len(told)


Jobs = Callable[..., Ended]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    def make(*jobs: Sequence[Output], shared: bool = True, group: bool = False) -> Ended:
        made = [SimpleNamespace(output=outputs, is_group=lambda: group) for outputs in jobs]
        return Ended(monkeypatch, made, shared=shared)

    return make


def test_what_is_there_is_not_missing(tmp_path: Path, ended: Jobs):
    made = tmp_path / "made"
    made.touch()
    jobs = ended([Output(made)])
    assert jobs.round(0) == 1
    assert not jobs.errors


def test_what_is_not_there_is_named_with_where_to_look(tmp_path: Path, ended: Jobs):
    jobs = ended([Output(tmp_path / "out")])
    assert [jobs.round(now_s) for now_s in (0, 19, 20)] == [0, 0, 1]
    (error,) = jobs.errors
    assert f"it ended well, but {tmp_path / 'out'} is not there" in error
    assert "whether the node sees the working folder" in error


def test_outputs_of_many_jobs_are_waited_for_together(tmp_path: Path, ended: Jobs):
    """Each for the latency of the file system from the end of its job on; nobody waits for another's."""
    jobs = ended(*([Output(tmp_path / f"out{number}")] for number in range(6)))
    assert jobs.round(1) == 0
    (tmp_path / "out3").touch()
    assert jobs.round(2) == 1
    assert jobs.round(20) == 5
    assert len(jobs.errors) == 5


@pytest.mark.parametrize("flag", ["pipe", "service", "storage_object"])
def test_what_is_no_file_of_the_shared_file_system_is_not_looked_for(
    tmp_path: Path, ended: Jobs, flag: str
):
    assert ended([Output(tmp_path / "out", flag)]).round(0) == 1


def test_groups_and_other_file_systems_are_snakemakes_own_to_check(tmp_path: Path, ended: Jobs):
    assert ended([Output(tmp_path / "out")], group=True).round(0) == 1
    assert ended([Output(tmp_path / "out")], shared=False).round(0) == 1
