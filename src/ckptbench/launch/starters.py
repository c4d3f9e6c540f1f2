"""The commands that start a run's ranks: here, or on the nodes of an allocation by its scheduler's own means."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckptbench import place
from ckptbench.allocation import Allocation, Seat
from ckptbench.errors import LaunchError

STEP: Mapping[str, str | None] = {
    # srun would bind a step of one task a node to one core: each rank takes its own cores (place.pin).
    "SLURM_CPU_BIND": "none",
    # It reads the job's own shape from the environment, where it would contradict the step's.
    **dict.fromkeys(
        ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    ),
}


@dataclass(frozen=True, slots=True)
class Process:
    """A command to start, and the logs that it and the ranks it starts write."""

    command: list[str]
    variables: Mapping[str, str | None]
    """Its own beside those of all processes; None takes one away."""
    logs: list[Path]
    """The first takes what the command itself prints."""
    is_rank: bool = False
    """Whether it is a rank itself, rather than what starts ranks."""


def rank_processes(
    command: list[str],
    allocation: Allocation,
    seats: Sequence[Seat],
    *,
    mpiexec: Path | None,
    variables: Mapping[str, str],
    logs: Path,
) -> list[Process]:
    """What starts `command` once for each seat.

    `mpiexec` starts ranks that speak MPI (None: they do not). `variables` are in the environment of every process
    started; where a scheduler's starter does not hand the environment on, they are written into the command.
    """
    paths = [logs / "starter.log", *(rank_log(logs, seat.rank) for seat in seats)]
    if mpiexec and len(seats) > 1:
        return [Process([str(mpiexec), *_hydra(allocation, seats), *command], STEP, paths)]
    if all(seat.node == allocation.here for seat in seats):
        return [_here(command, seat, logs) for seat in seats]
    match allocation.scheduler:
        case "slurm":
            return [Process([*_srun(seats), *command], STEP, paths)]
        case "gridengine":
            start = ["qrsh", "-nostdin", "-inherit"]
        case "pbs":
            start = ["pbs_tmrsh"]
        case "none":
            raise LaunchError("ranks on other hosts need a scheduler that starts them there")
    return [
        _here(command, seat, logs)
        if seat.node == allocation.here
        else _there(start, command, seat, variables, logs)
        for seat in seats
    ]


def rank_log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank}.log"


def _here(command: list[str], seat: Seat, logs: Path) -> Process:
    log = rank_log(logs, seat.rank)
    return Process(command, {place.RANK: str(seat.rank)}, [log], is_rank=True)


def _there(
    start: list[str], command: list[str], seat: Seat, variables: Mapping[str, str], logs: Path
) -> Process:
    settings = {**variables, place.RANK: str(seat.rank)}
    words = ["env", *(f"{name}={value}" for name, value in settings.items()), *command]
    # The remote side hands the words to a shell.
    quoted = [shlex.quote(word) for word in words]
    starter_log = logs / f"starter-{seat.rank}.log"
    return Process([*start, seat.node, *quoted], {}, [starter_log, rank_log(logs, seat.rank)])


def _srun(seats: Sequence[Seat]) -> list[str]:
    """One step over all nodes; each rank on the very node that it was given."""
    nodes = dict.fromkeys(seat.node for seat in seats)
    return [
        "srun",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(seats)}",
        "--distribution=arbitrary",
        f"--nodelist={','.join(seat.node for seat in seats)}",
        "--kill-on-bad-exit=1",
        "--export=ALL",
        "--input=none",
        "--overlap",
    ]


def _hydra(allocation: Allocation, seats: Sequence[Seat]) -> list[str]:
    """Options of MPICH's mpiexec. Said in full, for it would otherwise guess from the variables that it finds."""
    number = ["-n", str(len(seats))]
    nodes = dict.fromkeys(seat.node for seat in seats)
    if list(nodes) == [allocation.here]:
        return ["-launcher", "fork", "-rmk", "user", *number]
    launcher = {
        "slurm": ["-launcher", "slurm"],
        "gridengine": ["-launcher", "sge"],
        "pbs": ["-launcher", "rsh", "-launcher-exec", "pbs_tmrsh"],
        "none": ["-launcher", "ssh"],
    }[allocation.scheduler]
    hosts = ",".join(f"{node}:{sum(seat.node == node for seat in seats)}" for node in nodes)
    return [*launcher, "-rmk", "user", "-hosts", hosts, *number]
