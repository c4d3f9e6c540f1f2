"""Snakemake's submitit executor on a real Slurm."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from snakemake_executor_plugin_submitit.status import SHORTEST_POLL_SECONDS
from tests.cluster.commands import PATIENCE_S, poll
from tests.cluster.executor_workflow import Workflow, interrupt, look_for_secret

pytestmark = pytest.mark.usefixtures("slurm")

MANY = """
    rule all:
        input: expand("out/{i}", i=range(4))
    rule one:
        output: "out/{i}"
        resources: runtime=30, mem_mb=400
        shell: "echo $SLURM_ARRAY_JOB_ID ${{SLURM_MEM_PER_CPU:-}} ${{SLURM_HINT:-}} > {output}"
    """
STOPPABLE = """
    rule all:
        input: "result"
    rule train:
        output: "result"
        resources: runtime=30, mem_mb=400
        shell:
            \"\"\"
            trap 'echo saved > checkpoint; exit 1' TERM
            if [ -e checkpoint ]; then echo $SLURM_JOB_ID >> starts; cp checkpoint {output}; exit 0; fi
            if [ -e starts ]; then echo "stopped without a checkpoint"; scancel $SLURM_JOB_ID; fi
            echo $SLURM_JOB_ID >> starts
            while true; do sleep 0.2; done
            \"\"\"
    """
"""As soon as it has written `starts`, it can be told to stop."""
ENDING_SOON = STOPPABLE.replace("runtime=30", "runtime=2")
SLOW = """
    rule all:
        input: "result"
    rule wait:
        output: "result"
        resources: runtime=60, mem_mb=400
        shell: "echo started >> starts; while [ ! -e go ]; do sleep 0.2; done; echo done > {output}"
    """
KILLED = """
    rule all:
        input: "timeout", "memory", "cancelled"
    rule timeout:
        output: "timeout"
        # Without the signal before the limit, which would have the job stopped and requeued.
        resources: runtime=1, mem_mb=400, options="signal=CONT@1 nodelist=node3"
        shell: "sleep 3000; touch {output}"
    rule memory:
        output: "memory"
        resources: runtime=60, mem_mb=400
        shell: "python3 -c 'import time; x = bytearray(900_000_000); time.sleep(600)'"
    rule cancelled:
        output: "cancelled"
        # Not on the node from which a test beside this one has a job pre-empted.
        resources: runtime=60, mem_mb=400, options="nodelist=node3"
        shell: "touch began; sleep 3000"
    """

RETRIED = """
    rule again:
        output: "out"
        retries: 1
        resources: runtime=lambda wildcards, attempt: 5 * attempt, mem_mb=400
        shell: "echo {resources.runtime} >> tries; test {resources.runtime} = 10 && touch {output}"
    """
WATCHED = """
    rule wait:
        output: "one"
        resources: runtime=60, mem_mb=400
        shell: "touch started; sleep 3000"
    rule fail:
        output: "other"
        resources: runtime=60, mem_mb=400
        shell: "while [ ! -e fail ]; do sleep 0.1; done; exit 1"
    """


def active(job_ids: list[str]) -> list[str]:
    """Lines of squeue about these jobs."""
    command = ["squeue", "--noheader", "--array", "--format=%i %T"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    mains = {job_id.split("_")[0] for job_id in job_ids}
    return [line for line in lines.splitlines() if line.split("_")[0].split()[0] in mains]


def starts(workflow: Workflow) -> int:
    path = workflow.folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def killed(slurm: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workflow]:
    with background(Workflow(tmp_path_factory.mktemp("killed"), KILLED)) as workflow:
        yield workflow


@pytest.fixture(scope="module")
def stopped(slurm: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Workflow]]:
    """The last one counts: in CI a second run of its test has a workflow of its own."""
    with background(Workflow(tmp_path_factory.mktemp("stopped"), ENDING_SOON)) as workflow:
        yield [workflow]


@contextmanager
def background(workflow: Workflow) -> Iterator[Workflow]:
    process = workflow.start("--keep-going")
    yield workflow
    if process.poll() is None:
        interrupt(process)
        process.wait(PATIENCE_S)


@pytest.fixture(autouse=True)
def _early(killed: Workflow, stopped: list[Workflow]) -> None:
    """What takes a minute starts at once, and runs beside the other tests."""


@dataclass(frozen=True)
class Many:
    """A workflow of several jobs of one shape that has run to its end, on a Slurm that is busy at first."""

    workflow: Workflow
    queries: int
    """How often `squeue` was called."""
    seconds: float


@pytest.fixture(scope="module")
def many(slurm: object, tmp_path_factory: pytest.TempPathFactory) -> Many:
    folder = tmp_path_factory.mktemp("many")
    calls, tries = folder / "calls", folder / "tries"
    programs = {
        "squeue": f'echo x >> {calls}\nexec {shutil.which("squeue")} "$@"\n',
        "sbatch": f'echo x >> {tries}\n[ $(wc -l < {tries}) -gt 2 ] && exec {shutil.which("sbatch")} "$@"\n'
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\nexit 1\n',
    }
    (folder / "bin").mkdir()
    for name, lines in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{lines}")
        (folder / "bin" / name).chmod(0o755)
    workflow = Workflow(folder / "work", MANY)
    started = time.monotonic()
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    outer = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "2000", "SLURM_HINT": "nomultithread"}
    assert workflow.run(environment={"PATH": path, **outer}) == 0, workflow.text()
    seconds = time.monotonic() - started
    return Many(workflow, len(calls.read_text().split()), seconds)


def test_what_an_outer_job_was_told_does_not_reach_the_jobs(many: Many) -> None:
    assert "This workflow runs inside job 7. " in many.workflow.text()


def test_jobs_of_one_shape_go_as_one_array(many: Many) -> None:
    assert "4 jobs in 1 submissions" in many.workflow.text()
    assert {(many.workflow.folder / f"out/{i}").read_text().strip() for i in range(4)} == {
        many.workflow.job_ids()[0].split("_")[0]
    }


def test_one_query_a_round_whatever_the_number_of_jobs(many: Many) -> None:
    rounds = many.seconds / SHORTEST_POLL_SECONDS + 1
    said = int(many.workflow.wait_for_text(r"(\d+) status queries"))
    assert many.queries == said
    assert said <= rounds


def test_a_transient_error_of_sbatch_is_retried(many: Many) -> None:
    assert many.workflow.text().count("rejected a submission; next attempt") == 2


def test_a_refused_job_fails_alone_with_the_words_of_slurm(tmp_path: Path) -> None:
    snakefile = """
        rule all:
            input: "good", "bad"
        rule good:
            output: "good"
            resources: runtime=30, mem_mb=400
            shell: "touch {output}"
        rule bad:
            output: "bad"
            resources: runtime=30, mem_mb=400, queue="nowhere"
            shell: "touch {output}"
        """
    workflow = Workflow(tmp_path, snakefile)
    assert workflow.run("--keep-going") == 1
    assert (tmp_path / "good").exists()
    assert re.search(r"invalid partition specified: nowhere", workflow.text())
    assert re.search(r"exit status 1 of: sbatch /", workflow.text())


def test_a_held_job_is_named_with_the_command_that_lets_it_go(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, SLOW)
    (tmp_path / "go").touch()
    process = workflow.start("--submitit-options", "hold=true")
    words = (
        r"will not start by itself: PENDING \(JobHeldUser\)\. `(scontrol release \S+)` lets it go"
    )
    release = workflow.wait_for_text(words)
    assert not (tmp_path / "starts").exists()
    subprocess.run(release.split(), check=True)
    assert workflow.wait(process) == 0, workflow.text()


def test_nothing_is_decided_while_squeue_fails(tmp_path: Path) -> None:
    squeue, away = tmp_path / "bin" / "squeue", tmp_path / "away"
    squeue.parent.mkdir()
    squeue.write_text(f'#!/bin/sh\n[ -e {away} ] && exit 1\nexec {shutil.which("squeue")} "$@"\n')
    squeue.chmod(0o755)
    workflow = Workflow(tmp_path / "work", SLOW)
    process = workflow.start(environment={"PATH": f"{squeue.parent}:{os.environ['PATH']}"})
    workflow.wait_for_file("starts")
    away.touch()
    subprocess.run(["scancel", *workflow.job_ids()], check=True)
    workflow.wait_for_text(r"did not answer a status query \(4 in a row\): squeue: exit status 1")
    assert poll(lambda: not active(workflow.job_ids()))
    assert "ended without a result" not in workflow.text()
    away.unlink()
    assert workflow.wait(process) == 1
    assert "ended without a result: CANCELLED by" in workflow.text()


def test_ctrl_c_leaves_nothing_in_the_queue(tmp_path: Path) -> None:
    snakefile = MANY.replace(
        "echo $SLURM_ARRAY_JOB_ID ${{SLURM_MEM_PER_CPU:-}} ${{SLURM_HINT:-}} > {output}",
        "sleep 3000",
    )
    workflow = Workflow(tmp_path, snakefile)
    process = workflow.start()
    workflow.wait_for_text("was submitted")
    interrupt(process)
    assert workflow.wait(process) == 1
    assert poll(lambda: not active(workflow.job_ids())), active(workflow.job_ids())


@pytest.mark.parametrize("how", ["Ctrl-C", "a job fails"])
def test_no_job_is_left_by_a_workflow_whose_lines_nobody_reads_any_more(
    tmp_path: Path, how: str
) -> None:
    """Ctrl-C ends `| tee` too, mostly before Snakemake prints its first word on it."""
    workflow = Workflow(tmp_path, WATCHED)
    with workflow.log.open("ab") as log:
        tee = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
    targets = ("one",) if how == "Ctrl-C" else ("one", "other")
    process = workflow.start(*targets, environment={"PYTHONUNBUFFERED": "1"}, output=tee.stdin)
    assert tee.stdin
    tee.stdin.close()
    workflow.wait_for_file("started")
    tee.send_signal(signal.SIGINT)
    tee.wait(PATIENCE_S)
    if how == "Ctrl-C":
        interrupt(process)
    else:
        (tmp_path / "fail").touch()
    assert workflow.wait(process) != 0
    assert len(workflow.job_ids()) == len(targets)
    assert poll(lambda: not active(workflow.job_ids())), active(workflow.job_ids())


def test_each_try_of_a_rule_is_a_job_with_the_resources_of_that_try(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, RETRIED)
    assert workflow.run() == 0, workflow.text()
    assert (tmp_path / "tries").read_text().split() == ["5", "10"]
    assert "slurm: 2 jobs in 2 submissions" in workflow.text()


@pytest.mark.parametrize("options", [(), ("--submitit-options", "export=NONE")])
def test_a_declared_variable_reaches_a_job_unseen(tmp_path: Path, options: tuple[str, ...]) -> None:
    look_for_secret(tmp_path, "slurm", *options)


def test_ctrl_c_cancels_what_is_just_being_submitted(tmp_path: Path) -> None:
    slow = tmp_path / "bin" / "sbatch"
    slow.parent.mkdir()
    submitted = tmp_path / "submitted"
    slow.write_text(f'#!/bin/sh\n{shutil.which("sbatch")} "$@" | tee {submitted}; sleep 3\n')
    slow.chmod(0o755)
    workflow = Workflow(tmp_path / "work", SLOW)
    process = workflow.start(environment={"PATH": f"{slow.parent}:{os.environ['PATH']}"})
    assert poll(lambda: submitted.exists() and submitted.stat().st_size > 0)
    interrupt(process)
    assert workflow.wait(process) == 1
    job_ids = submitted.read_text().split()[-1:]
    assert poll(lambda: not active(job_ids))


def test_a_restarted_workflow_takes_its_jobs_back(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, SLOW)
    process = workflow.start()
    workflow.wait_for_file("starts")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert workflow.run("--unlock") == 0
    process = workflow.start("--rerun-incomplete")
    workflow.wait_for_text("is adopted")
    (tmp_path / "go").touch()
    assert workflow.wait(process) == 0, workflow.text()
    assert (starts(workflow), len(workflow.job_ids())) == (1, 1)
    assert (tmp_path / "result").read_text() == "done\n"


def test_a_job_whose_rule_has_changed_is_cancelled_and_submitted_anew(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, SLOW)
    process = workflow.start()
    workflow.wait_for_file("starts")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    changed = Workflow(tmp_path, SLOW.replace("while [ ! -e go ]; do sleep 0.2; done;", ""))
    assert changed.run("--unlock") == 0
    assert changed.run("--rerun-incomplete") == 0, changed.text()
    assert (starts(changed), len(changed.job_ids())) == (2, 2)
    assert poll(lambda: not active(changed.job_ids()))


def test_a_preempted_job_is_requeued_and_goes_on(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, STOPPABLE)
    process = workflow.start("--default-resources", "options='nodelist=node1'")
    workflow.wait_for_file("starts")
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodelist=node1", "--exclusive"]
    command = [*urgent, "--mem=0", "--output=/dev/null", "--wrap=sleep 3"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    assert workflow.wait(process) == 0, workflow.text()
    assert starts(workflow) == 2
    assert len(workflow.job_ids()) == 1
    assert (tmp_path / "result").read_text() == "saved\n"


def test_a_job_stopped_before_its_limit_is_requeued_and_goes_on(
    stopped: list[Workflow], tmp_path: Path
) -> None:
    workflow = stopped[-1]
    try:
        workflow.wait_for_text("Finished jobid: 0", timeout_s=2 * PATIENCE_S)
    except AssertionError:
        for log in sorted((workflow.folder / ".snakemake" / "submitit").glob("*/*_log.*")):
            print(f"{log}:\n{log.read_text(errors='replace')}")
        stopped.append(Workflow(tmp_path / "stopped", ENDING_SOON))
        stopped[-1].start("--keep-going")
        raise
    ids = (workflow.folder / "starts").read_text().split()
    # A slow machine may be told to stop again while the second start is still coming up.
    assert len(ids) >= 2
    assert len(set(ids)) == 1
    assert len(workflow.job_ids()) == 1
    assert (workflow.folder / "result").read_text() == "saved\n"


def test_what_slurm_killed_fails_with_its_reason(killed: Workflow) -> None:
    killed.wait_for_file("began")
    job_id = killed.wait_for_text(r"Error in rule memory[^$]*?external_jobid: (\S+)")
    assert job_id in killed.job_ids()
    assert re.search(r"OUT_OF_MEMORY|exceeded memory limit", killed.text())
    names = ["sacct", "--noheader", "--parsable2", "--format=JobID,JobName", "--allocations"]
    command = [*names, f"--jobs={','.join(killed.job_ids())}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ids = {name: job for job, name in (line.split("|") for line in listed.splitlines())}
    subprocess.run(["scancel", ids["cancelled"]], check=True)
    killed.wait_for_text(rf"slurm job {ids['cancelled']}, log .*CANCELLED by \d+")
    words = rf"slurm job {ids['timeout']}, log \S+: ended without a result: TIMEOUT \(.*00:01:00"
    killed.wait_for_text(words, timeout_s=2 * PATIENCE_S)


def test_ranks_on_every_node_are_told_to_stop(tmp_path: Path) -> None:
    """srun itself would kill them at once."""
    rank = """
        import os, signal, sys, time
        def stop(*_):
            open("saved-" + os.environ["SLURM_PROCID"], "w")
            sys.exit(3)
        signal.signal(signal.SIGTERM, stop)
        open("ready-" + os.environ["SLURM_PROCID"], "w")
        while not os.path.exists("saved-" + os.environ["SLURM_PROCID"]):
            time.sleep(0.1)
        """
    snakefile = """
        rule all:
            input: "done"
        rule train:
            output: "done"
            resources: nodes=2, tasks=2, runtime=10, mem_mb=600
            shell: "srun --mem=0 python3 rank.py && touch {output}"
        """
    workflow = Workflow(tmp_path, snakefile)
    (tmp_path / "rank.py").write_text(textwrap.dedent(rank))
    process = workflow.start()
    for name in ("ready-0", "ready-1"):
        workflow.wait_for_file(name)
    subprocess.run(["scancel", "--signal=USR2", "--batch", *workflow.job_ids()], check=True)
    assert workflow.wait(process) == 0, workflow.text()
    assert (tmp_path / "saved-0").exists()
    assert (tmp_path / "saved-1").exists()
    assert len(workflow.job_ids()) == 1
