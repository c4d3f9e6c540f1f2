"""Snakemake's submitit executor on a real PBS."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.commands import check, poll
from tests.cluster.executor_workflow import Workflow, interrupt, look_for_secret
from tests.cluster.pbs import Pbs
from tests.cluster.pbs_user import PYTHON, path_with

pytestmark = pytest.mark.usefixtures("pbs_client")

HELD = """
    rule all:
        input: expand("out/{i}", i=range(2))
    rule one:
        output: "out/{i}"
        resources: runtime=60, mem_mb=100
        shell: "echo $PBS_JOBID >> starts; while [ ! -e go ]; do sleep 0.2; done; echo done > {output}"
    """
STOPPED = """
    rule all:
        input: "result", "never"
    rule train:
        output: "result"
        resources: runtime=60, mem_mb=100
        shell:
            \"\"\"
            trap 'echo saved > checkpoint; exit 1' TERM
            if [ -e checkpoint ]; then cp checkpoint {output}; exit 0; fi
            echo $PBS_JOBID > trains
            while true; do sleep 0.2; done
            \"\"\"
    rule delete:
        output: "never"
        resources: runtime=60, mem_mb=100
        shell: "echo $PBS_JOBID > waits; sleep 3000"
    """


def active(job_ids: list[str]) -> list[str]:
    """Those of these jobs that the server still has."""
    mains = {job_id.split("_")[0] for job_id in job_ids}
    listed = check(["qselect"], {}).split()
    return [job_id for job_id in listed if job_id.split("[")[0].split(".")[0] in mains]


def starts(workflow: Workflow) -> list[str]:
    path = workflow.folder / "starts"
    return path.read_text().split() if path.exists() else []


def test_a_restarted_workflow_takes_its_jobs_back(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path / "a space", HELD, "pbs")
    process = workflow.start()
    assert poll(lambda: len(starts(workflow)) == 2), workflow.text()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert workflow.run("--unlock") == 0
    process = workflow.start("--rerun-incomplete")
    workflow.wait_for_text("is adopted")
    (workflow.folder / "go").touch()
    assert workflow.wait(process) == 0, workflow.text()
    assert len(starts(workflow)) == len(workflow.job_ids()) == 2


def test_a_job_told_with_qsig_goes_on_and_one_that_is_deleted_fails_and_says_so(
    tmp_path: Path,
) -> None:
    workflow = Workflow(tmp_path, STOPPED, "pbs")
    setup = path_with(tmp_path / "bin", "qrerun")
    process = workflow.start(
        "--keep-going", "--submitit-options", f"python={PYTHON}", f"setup={setup}"
    )
    trained, deleted = (noted(workflow, name) for name in ("trains", "waits"))
    check(["qsig", "-s", "USR2", trained], {})
    check(["qdel", deleted], {})
    assert workflow.wait(process) == 1
    assert (tmp_path / "result").read_text() == "saved\n"
    trained, deleted = (name.partition(".")[0] for name in (trained, deleted))
    assert {*workflow.job_ids()} == {trained, deleted}  # the first went on under its own id
    assert re.search(
        rf"pbs job {deleted}, log .*: ended without a result: CANCELLED", workflow.text()
    )
    assert f"pbs job {trained}, log" not in workflow.text().partition("Error in rule")[2]
    # The server lets go of a job a moment after the job has written its result.
    assert poll(lambda: not active(workflow.job_ids())), active(workflow.job_ids())


def noted(workflow: Workflow, name: str) -> str:
    """PBS's id of a job, which it has written to this file."""
    path = workflow.folder / name
    assert poll(lambda: path.exists() and path.read_text().endswith("\n")), workflow.text()
    return path.read_text().strip()


def test_jobs_and_their_workflow_outlive_the_absence_of_the_server(
    tmp_path: Path, pbs: Pbs
) -> None:
    """Twenty seconds at least, and as long as it takes until it was missed."""
    workflow = Workflow(tmp_path, HELD, "pbs")
    process = workflow.start()
    assert poll(lambda: len(starts(workflow)) == 2), workflow.text()
    pbs.stop_server()
    try:
        away = time.monotonic()
        workflow.wait_for_text("pbs did not answer a status query")
        poll(lambda: time.monotonic() - away > 20)
    finally:
        pbs.start_server()
    (tmp_path / "go").touch()
    assert workflow.wait(process) == 0, workflow.text()
    assert len(starts(workflow)) == len(workflow.job_ids()) == 2


def test_ctrl_c_leaves_nothing_in_the_queue(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, HELD, "pbs")
    process = workflow.start()
    workflow.wait_for_file("starts")
    interrupt(process)
    assert workflow.wait(process) == 1
    assert poll(lambda: not active(workflow.job_ids())), active(workflow.job_ids())


def test_a_held_array_is_named_with_the_command_that_lets_it_go(tmp_path: Path) -> None:
    """Its jobs have the variables of both `-v`, and a shell that takes commands."""
    said = "echo $A $B $($SHELL -c 'echo heard') > {output}"
    snakefile = re.sub('shell: ".*"', f'shell: "{said}"', HELD)
    workflow = Workflow(tmp_path, snakefile, "pbs")
    process = workflow.start("--submitit-options", 'extra=["-h", "-v A=1", "-v B=2"]')
    words = (
        r"job (?:\S+) and 1 more will not start by itself: PENDING.*\. `(qrls -h u \S+)` lets it"
    )
    release = workflow.wait_for_text(words)
    check(shlex.split(release), {})
    assert workflow.wait(process) == 0, workflow.text()
    made = [(tmp_path / "out" / name).read_text() for name in "01"]
    assert made == ["1 2 heard\n"] * 2
    assert workflow.text().count("will not start by itself") == 1


def test_a_declared_variable_reaches_a_job_unseen(tmp_path: Path) -> None:
    look_for_secret(tmp_path, "pbs")


def test_a_refused_job_fails_with_the_words_of_pbs(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path, HELD.replace("runtime=60", "runtime=60, queue='nowhere'"), "pbs")
    assert workflow.run() == 1
    assert "did not take the job: " in workflow.text()
    assert "Unknown queue" in workflow.text()
    assert not workflow.job_ids()
