"""The processes that a command started, wherever they have gone meanwhile."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable

import psutil

SPARED = frozenset({"srun"})
"""Programs that kill their remote tasks at once on SIGTERM: their tasks are told instead."""

KILL_ROUNDS = 10
_POLL_SECONDS = 0.1


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below `pid`, whatever their group or session; [] where it is gone.

    A process comes before those that it has started. They are told to stop in this order: a shell whose command dies
    before it is told itself may take that for an error of the command, and end without the trap that saves its work.
    """
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def tell(processes: Iterable[psutil.Process], signum: signal.Signals) -> None:
    """Sends a signal to each process that still exists and may be signalled."""
    for process in processes:
        try:
            process.send_signal(signum)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def ask_to_stop(pid: int, processes: Iterable[psutil.Process]) -> None:
    """SIGTERM to every process of the session of `pid`.

    A program that gave what it starts a session of its own answers for it: a launcher that is told
    lets its processes end in good order. Tasks that srun started get theirs through Slurm. A
    Snakemake is not told while a rule of it runs: it would call its job failed however that ends.
    """
    own = [process for process in processes if _session(process.pid) == _session(pid)]
    steps = [process for process in own if _name(process) in SPARED]
    busy = [process for process in own if _is_snakemake(process) and descendants(process.pid)]
    told = [process for process in own if process not in steps and process not in busy]
    tell(told, signal.SIGTERM)
    if steps:
        _tell_slurm_steps()


def stop(pid: int, wait_seconds: float) -> None:
    """Ends all below `pid`: SIGTERM, then SIGKILL to what is left after `wait_seconds`."""
    until = time.monotonic() + wait_seconds
    first_told = descendants(pid)
    session = _session(pid)
    ask_to_stop(pid, first_told)
    known = _wait(
        set(first_told), until, lambda alive: any(_session(p.pid) == session for p in alive)
    )
    tell(known, signal.SIGTERM)  # what those who answered for it have left behind
    known = _wait(known, until, bool)
    for _ in range(KILL_ROUNDS):  # what hangs in the kernel, as on a dead file server, is left
        tell(known, signal.SIGKILL)
        known = _wait(known, time.monotonic() + 1, bool)


def _wait(
    known: set[psutil.Process], until: float, wanted: Callable[[set[psutil.Process]], bool]
) -> set[psutil.Process]:
    """What still runs at `until`, or when it is no longer `wanted` to wait for; with what these
    processes started in the meantime."""
    while wanted(known := _alive(known)) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    return known


def _alive(known: set[psutil.Process]) -> set[psutil.Process]:
    alive = {process for process in known if _runs(process)}
    return alive.union(*(filter(_runs, descendants(process.pid)) for process in alive))


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _is_snakemake(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[1:3] == ["-m", "snakemake"]
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _tell_slurm_steps() -> None:
    """SIGTERM to the tasks of every job step on every node, not to the batch script."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}") for name in ("JOB_ID", "TASK_ID"))
    # The last task of an array has the id of the array, and scancel would take it for all tasks.
    job_id = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
    if job_id:
        # Not waited for: it may hang while the controller is busy, and time to stop is short.
        subprocess.Popen(["scancel", "--signal=TERM", job_id])
