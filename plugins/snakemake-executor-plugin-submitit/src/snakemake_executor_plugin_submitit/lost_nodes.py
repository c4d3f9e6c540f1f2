"""Nodes of a job that answer no more, seen from the job's first node."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

ANSWER_S = 60
"""How long a node may take to run nothing."""
AT_ONCE = 16

_START: dict[str, Callable[[str], list[str]]] = {
    "slurm": lambda node: [
        *("srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"),
        *("--mem=0", "--cpu-bind=none", "--input=none"),
    ],
    "gridengine": lambda node: ["qrsh", "-nostdin", "-inherit", node],
    "pbs": lambda node: ["pbs_tmrsh", node],
}
"""By submitit's name of the scheduler: the command that starts a program on a node of the job."""


def silent(scheduler: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Those of the job's `nodes`, the first of which is this one, on which nothing can be started any more. None where
    the scheduler's command starts nothing here either."""
    here, *others = nodes
    if not others or scheduler not in _START or not _answers(scheduler, here):
        return ()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(lambda node: _answers(scheduler, node), others)
        return tuple(node for node, well in zip(others, answers, strict=True) if not well)


def leave_out(scheduler: str, job_id: str, nodes: Sequence[str]) -> None:
    """Have a job that was just requeued start without `nodes`. Only Slurm can; the others start nothing on a node that they
    know is down."""
    if scheduler != "slurm":
        return
    # What is left of the job is told to end meanwhile: this process, and the commands that it starts.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        asked = _output(["scontrol", "--oneliner", "show", "job", job_id])
        without = ",".join([*_listed("ExcNodeList", asked), *nodes])
        # A job that names its nodes, or that needs all that there are, would never start.
        if not _listed("ReqNodeList", asked) and _leaves_enough(asked, without):
            _output(["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={without}"])
    finally:
        signal.signal(signal.SIGTERM, before)


def _leaves_enough(job: str, without: str) -> bool:
    """Whether its partition has as many nodes as the job needs, by `scontrol show job`, when it is `without` some."""
    partition, needed = _listed("Partition", job), _listed("NumNodes", job)
    if not (partition and needed):
        return False
    words = ("--noheader", "--Node", f"--partition={partition[0]}", "--format=%N")
    left_out = _output(["scontrol", "show", "hostnames", without]).split()
    rest = {*_output(["sinfo", *words]).split()} - {*left_out}
    return len(rest) >= int(needed[0].partition("-")[0])


def _answers(scheduler: str, node: str) -> bool:
    """Of two starts the first may fail on a busy node, but not take too long."""
    command = [*_START[scheduler](node), "true"]
    try:
        return any(_start(command).returncode == 0 for _ in range(2))
    except (OSError, subprocess.TimeoutExpired):
        return False


def _start(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    # srun would take the shape of the job from its variables.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name in ("SLURM_JOB_ID", "SLURM_CONF")
    }
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=ANSWER_S,
    )


def _listed(field: str, text: str) -> list[str]:
    """A field of `scontrol show job`, as Slurm writes it, if it has a value."""
    found = re.search(rf"\b{field}=(\S*)", text)
    return [found[1]] if found and found[1] not in ("", "(null)") else []


def _output(command: list[str]) -> str:
    """Empty where it fails, which the job's log says. The job then goes on as Slurm likes."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "stderr", None) or error
        words = f"{shlex.join(command)} failed ({str(why).strip()}): the job may start on a lost node again"
        print(words, file=sys.stderr, flush=True)
        return ""
    return done.stdout
