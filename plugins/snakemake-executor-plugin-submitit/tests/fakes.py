"""Stand-ins for Snakemake's jobs and logger, and for a scheduler."""

import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from submitit.core.core import Job

from snakemake_executor_plugin_submitit.cluster import JobState
from snakemake_executor_plugin_submitit.results import read_results

RUNNING = JobState(known=True, ended=False, killed=False, words="RUNNING")
UNKNOWN = JobState(known=False, ended=False, killed=False, words="UNKNOWN")
COMPLETED = JobState(known=True, ended=True, killed=False, words="COMPLETED")
TIMEOUT = JobState(known=True, ended=True, killed=True, words="TIMEOUT (after 00:01:00)")


class Logger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, line: str) -> None:
        self.lines.append(line)

    warning = info


@dataclass(eq=False)
class SnakemakeJob:
    name: str = "train"
    threads: int = 1
    resources: dict[str, Any] = field(default_factory=dict)
    input: Sequence[str] = ()
    output: Sequence[str] = ("out",)
    jobid: int = 1
    command: str = "train {input}"

    @property
    def rule(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.name, shellcmd=self.command)

    def is_group(self) -> bool:
        return False

    def properties(self) -> str:
        return json.dumps({"rule": self.name, "jobid": self.jobid, "resources": self.resources})


class FakeJob(Job[Any]):
    def __init__(self, folder: Path, job_id: str) -> None:
        super().__init__(folder, job_id)

    def finish(self, kind: str = "success", value: Any = 0) -> None:
        self.paths.folder.mkdir(parents=True, exist_ok=True)
        self.paths.result_pickle.write_bytes(pickle.dumps((kind, value)))


class FakeExecutor:
    def __init__(self, cluster: "FakeCluster", folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def submit_array(self, commands: list[Any]) -> list[FakeJob]:
        self.cluster.attempts.append(len(commands))
        if self.cluster.errors and (error := self.cluster.errors.pop(0)):
            raise error
        main = len(self.cluster.attempts)
        return [FakeJob(self.folder, f"{main}_{index}") for index in range(len(commands))]


class FakeCluster:
    name = "fake"
    note = ""

    def __init__(self) -> None:
        self.states: dict[str, JobState] = {}
        self.answers = True
        self.errors: list[Exception | None] = []
        self.attempts: list[int] = []
        self.cancelled: list[str] = []
        self.array_limit = 1000

    def executor(self, folder: Path, allocation: object) -> FakeExecutor:
        return FakeExecutor(self, folder)

    def job(self, folder: Path, job_id: str) -> FakeJob:
        return FakeJob(folder, job_id)

    def largest_array(self) -> int:
        return self.array_limit

    def results(self, jobs: Iterable[Job[Any]]) -> dict[str, str | None]:
        return read_results(jobs)

    def query(self) -> None:
        if not self.answers:
            raise ConnectionError("nobody there")

    def state(self, job: Job[Any]) -> JobState:
        return self.states.get(job.job_id, RUNNING)

    def forget(self, job_id: str) -> None: ...

    def clear(self, job: Job[Any]) -> None: ...

    def cancel(self, jobs: Sequence[Job[Any]]) -> list[str]:
        self.cancelled += [job.job_id for job in jobs]
        return []
