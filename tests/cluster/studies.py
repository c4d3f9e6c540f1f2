"""Studies as a cluster's user starts them: Snakemake with the cluster's profile, fitted to the emulated one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.commands import PATIENCE_S, run
from tests.study.checkout import Checkout, ranks_of

TINY = "config/studies/tiny.yaml"
VARIED = "config/studies/varied.yaml"
CORES = min(8, len(os.sched_getaffinity(0)))
ACCOUNT = ("--submitit-account", "gxx50000")
TWO_HOSTS = ("--submitit-tasks-per-node", "1")
"""Of two ranks, by any profile."""
FITTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Emulated nodes claim more memory than there is, and more cores. Two ranks have two nodes.
    "slurm": (TWO_HOSTS, ("runtime=10", "mem_mb=1500", "cpus_per_task=1")),
    # One host, which two ranks share; so many slots that a rank gets as many threads as locally.
    "gridengine": (
        ("--submitit-tasks-per-node", "2"),
        ("runtime=10", f"cpus_per_task={CORES}"),
    ),
    # Whole hosts, as the queue says, and two ranks on one of them.
    "abci": ((), ("runtime=10",)),
    "pbs": ((), ("runtime=10", "cpus_per_task=1")),
}
"""Options, and resources of all rules."""

OF_PBS = [["qstat", "-x", "-t"], ["qstat", "-s"], ["pbsnodes", "-a"]]
QUEUES: dict[str, list[list[str]]] = {
    "slurm": [["squeue", "--format=%i %T %r %N %M"], ["sinfo", "--Node", "--format=%N %T %E"]],
    "gridengine": [["qstat", "-f"]],
    "abci": OF_PBS,
    "pbs": OF_PBS,
    "local": [],
}
"""What is asked about a scheduler when a study does not end."""


def resources(cluster: str, **others: object) -> list[str]:
    """Options that fit the profile to the emulated cluster."""
    options, defaults = FITTED[cluster]
    wanted = dict(each.split("=") for each in defaults) | others
    common = ["--jobs", "3", "--latency-wait", "10", *options]
    return [*common, "--default-resources", *(f"{name}={value}" for name, value in wanted.items())]


def vary(
    checkout: Checkout, matrix: dict[str, Any], training: dict[str, Any], **others: Any
) -> str:
    """A study file in the checkout: the small study with other values."""
    study = yaml.safe_load((checkout.folder / TINY).read_text()) | others
    study["matrix"] |= matrix
    study["training"] |= training
    (checkout.folder / VARIED).write_text(yaml.safe_dump(study))
    return VARIED


@contextmanager
def started(
    checkout: Checkout, *targets: str, study: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """In the background; interrupted, which cancels its jobs, where the test does not wait for its end."""
    process = checkout.start(*targets, study=study, environment=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(PATIENCE_S)


def end_well(checkout: Checkout, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until the study has run to its end."""
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"not over after {timeout_s} s:\n{state(checkout)}") from None
    assert status == 0, said(checkout)


def state(checkout: Checkout, environment: Mapping[str, str] | None = None) -> str:
    """How far it is: its scheduler's queue, its ranks' processes, and the ends of all logs."""
    queue = [run(command, environment or {}).stdout for command in QUEUES[checkout.profile]]
    ranks = [sleeping(rank) for rank in ranks_of(checkout.folder)]
    jobs = sorted((checkout.folder / ".snakemake" / "submitit").glob("*/*_log.*"))
    runs = sorted((checkout.folder / "results" / "logs").rglob("*.log"))
    ends = [f"{path}:\n{end_of(path)}" for path in [*jobs, *runs]]
    return "\n".join([said(checkout), *queue, *ranks, *ends])


def sleeping(pid: int) -> str:
    """In what a process waits, thread by thread, as the kernel says (proc(5))."""
    threads = Path(f"/proc/{pid}/task").glob("*")
    with suppress(OSError):  # it has just ended
        return f"rank {pid}: " + ", ".join((each / "wchan").read_text() for each in threads)
    return f"rank {pid}: ended"


def end_of(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def said(checkout: Checkout) -> str:
    """What Snakemake printed."""
    return (checkout.folder / "workflow.log").read_text(errors="replace")


def submitted(checkout: Checkout) -> list[str]:
    """Ids of the jobs that the study has submitted, in order."""
    return re.findall(rf"was submitted: {checkout.profile} job (\S+),", said(checkout))
