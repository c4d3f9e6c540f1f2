"""The commands that start the ranks of a run: on this machine, or by the scheduler's tools on the allocated nodes."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ckptbench.common.errors import LaunchError
from ckptbench.launch.allocation import Allocation
from ckptbench.run.control.ranks import RankAssignment
from ckptbench.run.control.variables import RANK, RANK_SOURCE, RANK_SOURCES, SLURM_RANK

STEP: Mapping[str, str | None] = {
    # srun would bind a step with one task a node to a single core. Each rank pins itself to its cores (run.control.joining.pin).
    "SLURM_CPU_BIND": "none",
    # srun would take the shape of the job from these variables, which contradicts the shape of the step.
    **dict.fromkeys(
        ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    ),
    # A task of srun has numbers of its own. What it starts here is no rank.
    **dict.fromkeys((*RANK_SOURCES, SLURM_RANK)),
}

ONE_HOST: Mapping[str, str | None] = {
    **STEP,
    # mpiexec starts ranks on its own host by itself, whatever a site has set for jobs of several hosts.
    "HYDRA_LAUNCHER_AUTOFORK": "1",
    "HYDRA_HOST_FILE": None,
}
"""What mpiexec has in its environment where all ranks are on its own host."""

PBS_RSH = Path(__file__).with_name("pbs_rsh")
"""Starts a command line on another host of a PBS job, as rsh does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that every rank of a run executes."""

    command: list[str]
    logs: Path
    """The folder of `rank-<rank>.log`."""
    mpiexec: Path | None = None
    """The `mpiexec` that starts the ranks. None: they do not use MPI."""
    starts_all: bool = False
    """Whether the command starts all ranks itself."""
    starts_node: bool = False
    """Whether the command is started once on every node, and starts the ranks there."""
    libraries: tuple[str, ...] = ()
    """Folders to put into LD_LIBRARY_PATH."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that it needs."""


HANDED = ".environment-*"
"""The files of `HandedEnvironment`."""
TAKE = '. "$0" && { rm -f "$0"; exec "$@"; }'
"""A shell's script: it takes its environment from a file (its name is the script's `$0`), removes it, and becomes the command."""


@dataclass(frozen=True, slots=True)
class HandedEnvironment:
    """Environment variables for a process on another host, in a file that only this user can read.

    In the arguments of what starts the process they could be read by every user of this host (proc(5)), and one of them is
    the run's secret.
    """

    path: Path
    """On a file system that both hosts share."""
    variables: Mapping[str, str]

    def write(self) -> None:
        """Write the file, in lines of POSIX shell."""
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        with os.fdopen(
            os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.writelines(lines)


@dataclass(frozen=True, slots=True)
class Process:
    """A command to start, and the logs of the command and of the ranks that it starts."""

    command: list[str]
    variables: Mapping[str, str | None]
    """Environment variables of this process, added to those of all processes. None removes a variable."""
    logs: list[Path]
    """The command's own output goes to the first."""
    is_rank: bool = False
    """Whether the command is a rank. False: it starts ranks."""
    ignores_stops: bool = False
    """Whether the command starts with the schedulers' stop signals ignored, which every process of a job gets."""
    handed: HandedEnvironment | None = None
    """What is written before the command starts."""


def rank_processes(
    program: Program,
    allocation: Allocation,
    assignments: Sequence[RankAssignment],
    variables: Mapping[str, str],
) -> list[Process]:
    """The processes that start the program once for each assignment; once if it `starts_all`; or once on each node if it `starts_node`.

    Every started process must have `variables` in its environment. Where a scheduler's starter does not pass on the
    environment, the process takes them from a file (`Process.handed`). Raises LaunchError where ranks belong on other hosts and no scheduler can
    start them there.
    """
    command, logs = program.command, program.logs
    paths = [logs / "starter.log", *(rank_log(logs, assignment.rank) for assignment in assignments)]
    is_local = all(assignment.node == allocation.here for assignment in assignments)
    if program.starts_all or (program.starts_node and is_local):
        return [Process(command, STEP, paths, ignores_stops=True)]
    if program.starts_node:
        if allocation.scheduler != "slurm":
            raise LaunchError(
                "only Slurm can start the ranks of this recovery on several nodes: use as many ranks as fit on one node, or the recovery restart"
            )
        firsts = [assignment for assignment in assignments if assignment.local_rank == 0]
        return [Process([*_srun(firsts), *command], STEP, paths)]
    if program.mpiexec and len(assignments) > 1:
        mpiexec = [str(program.mpiexec), *_hydra(allocation, assignments)]
        return [Process([*mpiexec, *command], ONE_HOST if is_local else STEP, paths)]
    if is_local:
        return [_here(command, assignment, logs) for assignment in assignments]
    match allocation.scheduler:
        case "slurm":
            return [
                Process([*_srun(assignments), *command], {**STEP, RANK_SOURCE: SLURM_RANK}, paths)
            ]
        case "gridengine":
            start = _qrsh
        case "pbs":
            start = _pbs_tmrsh
        case "none":
            raise LaunchError("ranks on other hosts need a scheduler that starts them there")
    return [
        _here(command, assignment, logs)
        if assignment.node == allocation.here
        else _there(start, command, assignment, variables, logs)
        for assignment in assignments
    ]


def rank_log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank}.log"


def _here(command: list[str], assignment: RankAssignment, logs: Path) -> Process:
    log = rank_log(logs, assignment.rank)
    return Process(command, {RANK: str(assignment.rank)}, [log], is_rank=True, ignores_stops=True)


def _there(
    start: Callable[[str, list[str]], list[str]],
    command: list[str],
    assignment: RankAssignment,
    variables: Mapping[str, str],
    logs: Path,
) -> Process:
    rank = assignment.rank
    handed = HandedEnvironment(
        # A name of its own: a file server's client may remember that an older one is gone.
        (logs / HANDED.replace("*", f"{rank}-{secrets.token_hex(4)}")).absolute(),
        {**variables, RANK: str(rank)},
    )
    words = ["/bin/sh", "-c", TAKE, str(handed.path), *command]
    return Process(
        start(assignment.node, words),
        {},
        [logs / f"starter-{rank}.log", rank_log(logs, rank)],
        handed=handed,
    )


def _qrsh(node: str, words: list[str]) -> list[str]:
    """Grid Engine passes the words to a shell, which needs them quoted."""
    return ["qrsh", "-nostdin", "-inherit", node, *map(shlex.quote, words)]


def _pbs_tmrsh(node: str, words: list[str]) -> list[str]:
    """PBS starts the words as they are, without a shell that would take quotes away."""
    return ["pbs_tmrsh", node, *words]


def _srun(assignments: Sequence[RankAssignment]) -> list[str]:
    """One Slurm step over all nodes, which puts each rank on the node of its assignment."""
    nodes = dict.fromkeys(assignment.node for assignment in assignments)
    return [
        "srun",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(assignments)}",
        "--distribution=arbitrary",
        f"--nodelist={','.join(assignment.node for assignment in assignments)}",
        "--kill-on-bad-exit=1",
        "--export=ALL",
        "--input=none",
        "--overlap",
    ]


def _hydra(allocation: Allocation, assignments: Sequence[RankAssignment]) -> list[str]:
    """Options of MPICH's mpiexec. All are given, because it would guess missing ones from environment variables."""
    number = ["-n", str(len(assignments))]
    nodes = dict.fromkeys(assignment.node for assignment in assignments)
    if list(nodes) == [allocation.here]:
        return ["-launcher", "fork", "-rmk", "user", *number]
    launcher = {
        "slurm": ["-launcher", "slurm"],
        "gridengine": ["-launcher", "sge"],
        "pbs": ["-launcher", "rsh", "-launcher-exec", str(PBS_RSH)],
        "none": ["-launcher", "ssh"],
    }[allocation.scheduler]
    hosts = ",".join(
        f"{node}:{sum(assignment.node == node for assignment in assignments)}" for node in nodes
    )
    return [*launcher, "-rmk", "user", "-hosts", hosts, *number]
