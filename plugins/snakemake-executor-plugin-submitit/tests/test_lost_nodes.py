"""A job whose command fails as another of its nodes dies, with a scheduler's commands replaced."""

import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission

from snakemake_executor_plugin_submitit import lost_nodes
from snakemake_executor_plugin_submitit.command import MOST_LOST_NODES, NestedCommand

PATIENCE_S = 300
NODE = """
import sys
from snakemake_executor_plugin_submitit import lost_nodes
from submitit.core.submission import process_job
lost_nodes.ANSWER_S = 2
process_job(sys.argv[1])
"""
STARTS = {
    "slurm": """\
        [ -z "$SLURM_NTASKS" ] || exit 3
        for word in "$@"; do case $word in --nodelist=*) node=${word#--nodelist=};; esac; done""",
    "gridengine": "node=$3",
    "pbs": "node=$1",
}
"""How the command that starts a program finds its node."""
PROGRAMS = {"slurm": "srun", "gridengine": "qrsh", "pbs": "pbs_tmrsh"}
INSIDE = {
    "slurm": {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-3]", "SLURM_NTASKS": "6"},
    "gridengine": {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "NHOSTS": "3"},
    "pbs": {"SUBMITIT_PBS_JOB_ID": "7", "PBS_JOBID": "7.pbs1"},
}
HOSTFILES = {"gridengine": "PE_HOSTFILE", "pbs": "PBS_NODEFILE"}
REQUEUES = {"slurm": "scontrol requeue 7", "pbs": "qrerun 7.pbs1"}


class Job:
    """A job of three nodes, whose program is `bash -c COMMAND`."""

    def __init__(self, folder: Path, scheduler: str) -> None:
        self.folder, self.scheduler = folder, scheduler
        (folder / "bin").mkdir()
        (folder / "hosts").write_text("node1\nnode2\nnode3\n")
        self.make(
            PROGRAMS[scheduler], f"{STARTS[scheduler]}\n[ ! -e {folder}/$node.dead ] || sleep 60"
        )
        self.make("scontrol", "")
        self.make("qrerun", "")

    def make(self, name: str, lines: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.folder}/calls\n{lines}\n')
        path.chmod(0o755)

    def kill(self, *nodes: str) -> None:
        for node in nodes:
            (self.folder / f"{node}.dead").touch()

    def run(self, command: str, lost: tuple[str, ...] = ()) -> int:
        delayed = DelayedSubmission(NestedCommand(command, str(self.folder), 60, 600, lost))
        delayed.set_timeout(600, 3)
        delayed.dump(self.folder / "7_submitted.pkl")
        variables = {
            "SUBMITIT_EXECUTOR": self.scheduler,
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
        }
        if self.scheduler in HOSTFILES:
            variables[HOSTFILES[self.scheduler]] = str(self.folder / "hosts")
        with (self.folder / "log").open("w") as log:
            return subprocess.run(
                [sys.executable, "-c", NODE, str(self.folder)],
                env=os.environ | variables | INSIDE[self.scheduler],
                stderr=log,
                timeout=PATIENCE_S,
                check=False,
            ).returncode

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def notes(self) -> str:
        path = self.folder / "7_requeues.txt"
        return path.read_text() if path.exists() else ""

    def error(self) -> str:
        path = self.folder / "7_0_result.pkl"
        return str(pickle.loads(path.read_bytes())[1]) if path.exists() else ""


@pytest.fixture(params=list(STARTS))
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    return Job(tmp_path, request.param)


@pytest.fixture
def on_slurm(tmp_path: Path) -> Job:
    return Job(tmp_path, "slurm")


def test_a_job_goes_back_to_the_queue_when_it_fails_as_another_node_answers_no_more(job: Job):
    job.kill("node3")
    status = job.run("exit 1")
    assert job.error() == ""
    assert job.notes() == "lost node3\n"
    if job.scheduler == "gridengine":
        assert status == 99
    else:
        assert REQUEUES[job.scheduler] in job.calls()
    again = DelayedSubmission.load(job.folder / "7_submitted.pkl")
    assert again.function.lost == ("node3",)
    assert again._timeout_countdown == 3


def test_a_job_that_fails_while_all_nodes_answer_has_failed(job: Job):
    job.run("exit 1")
    assert "the job's command ended with exit status 1" in job.error()
    assert job.notes() == ""


def test_nothing_is_asked_about_nodes_where_the_command_ends_well(job: Job):
    job.kill("node3")
    assert job.run("exit 0") == 0
    assert job.calls() == []


def test_nothing_follows_where_the_scheduler_starts_nothing_on_the_own_node_either(job: Job):
    job.kill("node1", "node3")
    job.run("exit 1")
    assert "ended with exit status 1" in job.error()
    assert "node3" not in job.error()


def test_a_job_that_loses_node_after_node_fails_at_last_and_names_the_node(on_slurm: Job):
    on_slurm.kill("node2", "node3")
    on_slurm.run("exit 1", lost=("a", "b", "c", "d", "e")[: MOST_LOST_NODES - 1])
    assert "exit status 1; no answer from node2, node3" in on_slurm.error()
    assert not [call for call in on_slurm.calls() if call.startswith("scontrol requeue")]


FIELDS = "JobId=7 Partition=main ReqNodeList={wanted} ExcNodeList={without} NodeList=node[1-3] NumNodes={number}"
CLUSTER = "node1 node2 node3 node4 node8"


@pytest.mark.parametrize(
    ("wanted", "without", "number", "told"),
    [
        ("(null)", "(null)", "3-3", ["scontrol update JobId=7 ExcNodeList=node3"]),
        ("(null)", "node8", "3", ["scontrol update JobId=7 ExcNodeList=node8,node3"]),
        ("(null)", "node8", "4", []),  # of five nodes three are left
        ("node[1-3]", "(null)", "3", []),
    ],
)
def test_slurm_leaves_the_lost_node_out_unless_the_job_could_never_start_then(
    on_slurm: Job, wanted: str, without: str, number: str, told: list[str]
):
    """In the seconds between the requeue and the end of this process, which is told to end."""
    on_slurm.kill("node3")
    shown = shlex.quote(FIELDS.format(wanted=wanted, without=without, number=number))
    on_slurm.make(
        "scontrol",
        f"[ $2 != show ] || {{ kill -TERM $PPID $$; echo {shown}; }}\n"
        "[ $2 != hostnames ] || echo $3 | tr , '\\n'",
    )
    on_slurm.make("sinfo", f"[ $3 = --partition=main ] && printf '%s\\n' {CLUSTER}")
    on_slurm.run("exit 1")
    calls = [
        call for call in on_slurm.calls() if call.startswith("scontrol") and "show" not in call
    ]
    assert calls == ["scontrol requeue 7", *told]


def test_the_log_says_why_slurm_does_not_leave_the_lost_node_out(on_slurm: Job):
    on_slurm.kill("node3")
    on_slurm.make("scontrol", "[ $2 != show ] || { echo Access denied >&2; exit 1; }")
    on_slurm.run("exit 1")
    told = "scontrol --oneliner show job 7 failed (Access denied): the job may start on a lost node again"
    assert told in (on_slurm.folder / "log").read_text()
    assert on_slurm.notes() == "lost node3\n"


def test_a_node_that_fails_to_start_something_once_is_not_lost(on_slurm: Job):
    on_slurm.make("srun", f"mkdir {on_slurm.folder}/once 2> /dev/null && exit 1; exit 0")
    on_slurm.run("exit 1")
    assert "ended with exit status 1" in on_slurm.error()
    assert len([call for call in on_slurm.calls() if call.startswith("srun")]) == 4


def test_a_job_of_one_node_asks_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lost_nodes, "_answers", lambda *_: False)
    assert lost_nodes.silent("slurm", ["node1"]) == ()
