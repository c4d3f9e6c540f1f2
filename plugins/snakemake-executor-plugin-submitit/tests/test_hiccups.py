"""The three schedulers with commands that fail, hang, or answer half: no job is lost, and none is ended twice."""

import pickle
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes import Logger

from snakemake_executor_plugin_submitit import clusters
from snakemake_executor_plugin_submitit.cluster import Cluster
from snakemake_executor_plugin_submitit.settings import ExecutorSettings
from snakemake_executor_plugin_submitit.status import Poller

POLLS = 1000
ROUND_S = 30
JOBS = 20
LISTED_S = 600
"""How long Slurm's controller and PBS's history keep a job that has ended."""


@dataclass(frozen=True)
class Life:
    """When a job starts, is requeued, starts again and ends, in seconds; whether it leaves a result."""

    start_s: int
    requeue_s: int
    restart_s: int
    end_s: int
    good: bool

    @classmethod
    def draw(cls, dice: random.Random) -> "Life":
        times = sorted(dice.sample(range(POLLS * ROUND_S // 2), 4))
        return cls(*times, good=dice.random() < 0.5)

    def phase(self, now_s: float) -> str:
        if now_s < self.start_s or self.requeue_s <= now_s < self.restart_s:
            return "waits"
        return "runs" if now_s < self.end_s else "ended"

    def was_requeued(self, now_s: float) -> bool:
        return self.requeue_s <= now_s < self.restart_s


class World:
    """Jobs whose truth is known, and a clock."""

    def __init__(self, dice: random.Random) -> None:
        self.now_s = 0.0
        self.lives = {str(4711 + number): Life.draw(dice) for number in range(JOBS)}

    def phases(self) -> dict[str, str]:
        return {job_id: life.phase(self.now_s) for job_id, life in self.lives.items()}

    def listed(self) -> list[str]:
        return [id_ for id_, life in self.lives.items() if self.now_s < life.end_s + LISTED_S]

    def squeue(self) -> str:
        words = {
            "waits": "PENDING|Priority",
            "runs": "RUNNING|None",
            "ended": "FAILED|NonZeroExitCode",
        }
        phases = self.phases()
        return "".join(f"{job_id}|{words[phases[job_id]]}\n" for job_id in self.listed())

    def sacct(self) -> str:
        words = {"waits": "PENDING|0:0", "runs": "RUNNING|0:0", "ended": "FAILED|0:9"}
        lines = ["JobID|State|ExitCode|Elapsed|Timelimit|NodeList"]
        for job_id, phase in self.phases().items():
            requeued = self.lives[job_id].was_requeued(self.now_s)
            words_now = "NODE_FAIL|0:0" if requeued else words[phase]
            lines.append(f"{job_id}|{words_now}|00:01:00|01:00:00|node1")
        return "".join(f"{line}\n" for line in lines)

    def pbs_qstat(self) -> str:
        words = {
            "waits": "Q|comment=Not Running",
            "runs": "R|queue=q",
            "ended": "F|Exit_status=265",
        }
        phases = self.phases()
        return "".join(
            f"Job Id: {id_}.pbs1|job_state={words[phases[id_]]}\n" for id_ in self.listed()
        )

    def pbs_complaints(self) -> str:
        gone = self.lives.keys() - set(self.listed())
        return "".join(f"qstat: Unknown Job Id {job_id}.pbs1\n" for job_id in sorted(gone))

    def gridengine_qstat(self) -> str:
        letters = {"waits": "qw", "runs": "r"}
        jobs = "".join(
            f"<job_list><JB_job_number>{job_id}</JB_job_number><state>{letters[phase]}</state></job_list>\n"
            for job_id, phase in self.phases().items()
            if phase in letters
        )
        return f'<?xml version="1.0"?>\n<job_info><queue_info>\n{jobs}</queue_info></job_info>\n'

    def qacct(self) -> str:
        runs = ""
        for job_id, life in self.lives.items():
            ends = ((life.requeue_s, "25  : rescheduling", 0), (life.end_s, "0", 137))
            for end_s, failed, status in ends:
                if end_s <= self.now_s:
                    lines = (
                        f"jobnumber {job_id}",
                        "taskid undefined",
                        f"failed {failed}",
                        f"exit_status {status}",
                    )
                    runs += "=" * 60 + "\n" + "".join(f"{line}\n" for line in lines)
        return runs


Command = Callable[[], str]


class Hiccups:
    """subprocess.run for commands of which four in ten fail, hang, are cut off, or are a notice of the site."""

    def __init__(
        self, dice: random.Random, commands: dict[str, Command], complaints: Command
    ) -> None:
        self._dice = dice
        self._commands = commands
        self._complaints = complaints
        self.asked = 0

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.asked += 1
        name = next(word for word in command if word in self._commands)
        text, complaints = self._commands[name](), self._complaints()
        fate = self._dice.random()
        if fate < 0.1:
            return subprocess.CompletedProcess(command, 1, "", "Unable to contact the controller\n")
        if fate < 0.2:
            raise subprocess.TimeoutExpired(command, 60)
        if fate < 0.35:
            text = text[: self._dice.randrange(len(text))] if text else text
        elif fate < 0.4:
            text = "Notice of the site: maintenance tonight\n"
        return subprocess.CompletedProcess(command, 1 if complaints else 0, text, complaints)


def commands(world: World, scheduler: str) -> dict[str, Command]:
    return {
        "slurm": {"squeue": world.squeue, "sacct": world.sacct, "sinfo": str},
        "pbs": {"qstat": world.pbs_qstat, "pbsnodes": str},
        "gridengine": {"qstat": world.gridengine_qstat, "qacct": world.qacct, "qdel": str},
    }[scheduler]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Cluster]:
    """A cluster whose watcher knows of no other test's jobs."""

    def make(scheduler: str) -> Cluster:
        cluster = clusters.cluster(ExecutorSettings(cluster=scheduler))
        job_class = cluster.executor_class.job_class
        monkeypatch.setattr(job_class, "watcher", type(job_class.watcher)())
        return cluster

    return make


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "gridengine"])
def test_a_thousand_polls_of_a_scheduler_with_hiccups_lose_no_job_and_repeat_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh: Callable[[str], Cluster],
    scheduler: str,
) -> None:
    dice = random.Random(f"hiccups of {scheduler}")
    world = World(dice)
    complaints = world.pbs_complaints if scheduler == "pbs" else str
    run = Hiccups(dice, commands(world, scheduler), complaints)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(time, "monotonic", lambda: world.now_s)
    cluster = fresh(scheduler)
    open_jobs = {job_id: cluster.job(tmp_path, job_id) for job_id in world.lives}
    poller = Poller(cluster, Logger(), lambda: world.now_s)  # type: ignore[arg-type]
    ended: dict[str, str | None] = {}
    for poll in range(POLLS):
        world.now_s = float(poll * ROUND_S)
        for job_id, life in world.lives.items():
            if life.good and life.end_s <= world.now_s and job_id in open_jobs:
                open_jobs[job_id].paths.result_pickle.write_bytes(pickle.dumps(("success", 0)))
        for outcome in poller.ended(list(open_jobs.values())):
            job_id = outcome.job.job_id
            assert world.lives[job_id].phase(world.now_s) == "ended", outcome.error
            assert job_id not in ended
            ended[job_id] = outcome.error
            del open_jobs[job_id]
    assert run.asked > POLLS / 3
    assert {job_id: error is None for job_id, error in ended.items()} == {
        job_id: life.good for job_id, life in world.lives.items()
    }
