"""The emulated clusters are what their users are told they are."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.cluster.commands import check, poll, run
from tests.cluster.slurm_conf import CPUS_PER_NODE, GPUS_PER_NODE, NODES, PREEMPTION_GRACE_S

Script = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a shell script from its lines."""

    def write(*lines: str) -> Path:
        path = tmp_path / "job.sh"
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        return path

    return write


# Slurm


def sbatch(output: Path, *arguments: object) -> str:
    """Submit, and give the job's id."""
    options = ["--parsable", f"--output={output}", "--open-mode=append", "--time=60"]
    return check(["sbatch", *options, *map(str, arguments)], {}).strip()


def accounted(job: str, field: str) -> str:
    """A field of the job in the accounting; empty as long as there is none."""
    return check(["sacct", "-X", "-n", "-P", "-j", job, f"--format={field}"], {}).strip()


def comes_to(job: str, state: str) -> bool:
    return poll(lambda: accounted(job, "State") == state, interval_s=0.5)


@pytest.mark.usefixtures("slurm")
def test_slurm_has_three_nodes_with_gpus() -> None:
    table = ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %c %G"]
    expected = [f"{node} {CPUS_PER_NODE} gpu:{GPUS_PER_NODE}" for node in NODES]
    assert check(table, {}).splitlines() == expected


@pytest.mark.usefixtures("slurm")
def test_a_step_runs_on_every_node_and_sees_its_gpus() -> None:
    show = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    step = ["srun", "--nodes=3", "--ntasks=3", f"--gpus-per-node={GPUS_PER_NODE}", "sh", "-c", show]
    assert sorted(check(step, {}).splitlines()) == [f"{node} 0,1" for node in NODES]


@pytest.mark.usefixtures("slurm")
def test_slurm_times_out_a_job_at_its_limit(tmp_path: Path) -> None:
    ident = sbatch(tmp_path / "output", "--wrap=sleep 10000")
    assert comes_to(ident, "RUNNING"), accounted(ident, "State")
    # Its end can be moved, however slowly it came up.
    check(["scontrol", "update", f"JobId={ident}", "EndTime=now+1"], {})
    assert comes_to(ident, "TIMEOUT"), accounted(ident, "State")


@pytest.mark.usefixtures("slurm")
def test_slurm_kills_a_job_over_its_memory_and_says_so(tmp_path: Path) -> None:
    output = tmp_path / "output"
    eat = f"{sys.executable} -c 'x = bytearray(300_000_000); import time; time.sleep(600)'"
    ident = sbatch(output, "--mem=50", f"--wrap={eat}")
    assert comes_to(ident, "FAILED"), accounted(ident, "State")
    assert "exceeded memory limit" in output.read_text()


@pytest.mark.usefixtures("slurm")
def test_slurm_lets_a_requeued_job_run_again_within_ten_seconds(
    script: Script, tmp_path: Path
) -> None:
    """From then on it may run; when it does, is a matter of the machine's load."""
    job = script(
        "echo run ${SLURM_RESTART_COUNT:-0}",
        '[ "$SLURM_RESTART_COUNT" ] || { scontrol requeue $SLURM_JOB_ID; sleep 600; }',
    )
    output = tmp_path / "output"
    ident = sbatch(output, "--requeue", job)
    assert comes_to(ident, "COMPLETED"), accounted(ident, "State")
    runs = [line for line in output.read_text().splitlines() if line.startswith("run ")]
    assert runs == ["run 0", "run 1"]
    requeued, allowed = (
        datetime.fromisoformat(accounted(ident, field)) for field in ("Submit", "Eligible")
    )
    assert timedelta(0) <= allowed - requeued < timedelta(seconds=10)


@pytest.mark.usefixtures("slurm")
def test_an_urgent_job_preempts_a_main_one_which_is_signalled_and_requeued(
    script: Script, tmp_path: Path
) -> None:
    job = script(
        # A job that ends of itself in its grace would not be requeued.
        'trap "echo USR2" USR2',
        'echo "run ${SLURM_RESTART_COUNT:-0}"',
        '[ "$SLURM_RESTART_COUNT" ] && exit 0',
        "while :; do sleep 0.1; done",
    )
    output = tmp_path / "output"
    preempted = sbatch(output, "--nodes=3", "--exclusive", "--signal=B:USR2@60", job)
    assert poll(lambda: output.exists() and "run 0" in output.read_text())
    # It takes no notice, so that its grace is waited for.
    check(["scontrol", "update", "PartitionName=main", "GraceTime=3"], {})
    try:
        check(["srun", "--partition=urgent", "--nodelist=node3", "--exclusive", "true"], {})
    finally:
        grace = f"GraceTime={PREEMPTION_GRACE_S}"
        check(["scontrol", "update", "PartitionName=main", grace], {})
    assert comes_to(preempted, "COMPLETED"), accounted(preempted, "State")
    events = re.findall(r"^(?:run \d|USR2|.*PREEMPTION)", output.read_text(), re.MULTILINE)
    assert (events[0], events[1], events[-1]) == ("run 0", "USR2", "run 1")
    assert any("PREEMPTION" in event for event in events)


# Grid Engine


def qsub(output: Path, *arguments: object) -> str:
    """Submit, and give the job's id."""
    options = ["-terse", "-cwd", "-j", "y", "-o", str(output)]
    return check(["qsub", *options, *map(str, arguments)], {}).strip()


def ends_of(ident: str) -> list[tuple[str, str]]:
    """What was the matter ("0": nothing) and the exit status, for every end in the accounting."""
    told = run(["qacct", "-j", ident], {}).stdout
    fields = {name: re.findall(rf"^{name} +(\d+)", told, re.MULTILINE) for name in _ENDS}
    return list(zip(*(fields[name] for name in _ENDS), strict=True))


_ENDS = ("failed", "exit_status")


def has_ended(ident: str, times: int) -> bool:
    return poll(lambda: len(ends_of(ident)) == times, interval_s=0.5)


@pytest.mark.usefixtures("gridengine")
def test_gridengine_tells_how_a_job_ended(script: Script, tmp_path: Path) -> None:
    ident = qsub(tmp_path / "output", script("exit 3"))
    assert has_ended(ident, times=1)
    assert ends_of(ident) == [("0", "3")]


@pytest.mark.usefixtures("gridengine")
def test_a_parallel_job_starts_tasks_in_its_slots(script: Script, tmp_path: Path) -> None:
    job = script(
        "read host slots rest <$PE_HOSTFILE",
        'echo "$slots slots"',
        "for task in 1 2 3 4; do",
        "    qrsh -inherit -nostdin $host echo task $task &",
        "done",
        "wait",
    )
    output = tmp_path / "output"
    ident = qsub(output, "-pe", "mpi", 4, job)
    assert has_ended(ident, times=5)
    tasks = sorted(line for line in output.read_text().splitlines() if line.startswith("task"))
    assert tasks == [f"task {task}" for task in (1, 2, 3, 4)]
    assert "4 slots" in output.read_text()


@pytest.mark.usefixtures("gridengine")
def test_gridengine_signals_a_job_at_its_soft_limit_and_runs_it_again_on_status_99(
    script: Script, tmp_path: Path
) -> None:
    job = script(
        'trap "echo USR1; exit 99" USR1',
        'echo "run $RESTARTED of $JOB_ID"',
        '[ "$RESTARTED" = 1 ] && exit 0',
        "while :; do sleep 0.1; done",
    )
    output = tmp_path / "output"
    ident = qsub(output, "-r", "y", "-l", "s_rt=0:0:8,h_rt=0:10:0", job)
    assert has_ended(ident, times=2), ends_of(ident)
    lines = [line for line in output.read_text().splitlines() if line.startswith(("run", "USR1"))]
    assert lines == [f"run 0 of {ident}", "USR1", f"run 1 of {ident}"]
    assert ends_of(ident) == [("25", "99"), ("0", "0")]


@pytest.mark.usefixtures("gridengine")
def test_gridengine_kills_a_job_at_its_hard_limit_and_says_so(
    script: Script, tmp_path: Path
) -> None:
    ident = qsub(tmp_path / "output", "-l", "h_rt=0:0:2", script("sleep 1000"))
    assert has_ended(ident, times=1)
    assert ends_of(ident)[0][0] == "37"


@pytest.mark.usefixtures("gridengine")
def test_a_job_waits_for_gpus_that_another_one_holds(script: Script, tmp_path: Path) -> None:
    holder = qsub(tmp_path / "holder", "-l", "gpu=4", script("sleep 1000"))
    waiter = qsub(tmp_path / "waiter", "-l", "gpu=1", script("sleep 1000"))
    running = ["qstat", "-s", "r", "-u", "*"]
    assert poll(lambda: holder in check(running, {}), interval_s=0.5)
    time.sleep(2)
    assert waiter not in check(running, {})
    check(["qdel", holder, waiter], {})
