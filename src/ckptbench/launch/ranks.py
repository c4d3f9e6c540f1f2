"""Starts the ranks of one run on the allocated nodes, and checks that all start in their places and end well."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ckptbench.errors import RunStopped
from ckptbench.launch.allocation import Allocation, granted_cores
from ckptbench.launch.starters import rank_processes
from ckptbench.launch.watch import Limits, give_up, run_processes
from ckptbench.machine.clock import boot_id, clock
from ckptbench.matrix.catalogue import FRAMEWORKS
from ckptbench.recovery.contract import Loss, Recovery, Relaunch, Verdict
from ckptbench.runs.plan import Plan
from ckptbench.world.control import ControlServer
from ckptbench.world.seats import Seat, ranks_a_node
from ckptbench.world.variables import rank_environment

log = logging.getLogger(__name__)

SOURCE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that every rank of a run executes."""

    command: list[str]
    logs: Path
    """The folder of `rank-<rank>.log`."""
    mpiexec: Path | None = None
    """The `mpiexec` that starts the ranks. None: they do not use MPI."""
    libraries: tuple[str, ...] = ()
    """Folders to put into LD_LIBRARY_PATH."""


def launch(
    plan: Plan,
    allocation: Allocation,
    recovery: Recovery,
    *,
    python: Path,
    logs: Path,
    limits: Limits,
) -> Relaunch | None:
    """Run every rank of `plan` on `allocation` with the interpreter `python` until all have ended.

    Returns None if all have ended well, and a Relaunch if `recovery` wants them started again. Raises LaunchError if
    `recovery` gives up: the other ranks are ended first, and the error quotes the last log lines of the rank that died
    first. Raises LaunchError too if the run takes longer than `limits` allows, or if the workflow that started this
    process is gone. Raises RunStopped if the ranks stopped because they were asked to.
    """
    # mpiexec comes from the framework's environment, so that it belongs to the same MPI as the library there.
    speaks_mpi = FRAMEWORKS[plan.cell.framework].launcher == "mpiexec"
    program = Program(
        command=recovery.command(
            [str(python), "-m", "ckptbench.training.rank", str(plan.write())], plan
        ),
        logs=logs,
        mpiexec=python.parent / "mpiexec" if speaks_mpi else None,
        libraries=_cuda_libraries(python) if plan.cell.accelerator == "cuda" else (),
    )
    ranks_here = ranks_a_node(allocation.seats(plan.cell.ranks))
    cores = granted_cores(os.environ)
    if plan.cell.accelerator == "cpu" and ranks_here > cores:
        log.warning(
            "%d ranks share %d cores: do not trust the times of this run", ranks_here, cores
        )
    return run_ranks(
        program, plan.cell.ranks, allocation, limits, after=lambda loss: recovery.after(loss, plan)
    )


def run_ranks(
    program: Program,
    ranks: int,
    allocation: Allocation,
    limits: Limits,
    *,
    threads: int | None = None,
    after: Callable[[Loss], Verdict] = give_up,
) -> Relaunch | None:
    """Start the program in this number of ranks, and check that all start in their places and end well.

    Each rank computes with `threads` threads. None: with its share of the node's cores; all nodes are assumed to have
    as many cores as this one. `after` decides what to do when a rank has died. Returns and raises as `launch` does.
    """
    seats = allocation.seats(ranks)
    program.logs.mkdir(parents=True, exist_ok=True)
    with closing(ControlServer(seats, host=_own_host(allocation, seats))) as control:
        variables = _variables(program, seats, control, threads)
        processes = rank_processes(
            program.command,
            allocation,
            seats,
            mpiexec=program.mpiexec,
            variables=variables,
            logs=program.logs,
        )
        verdict = run_processes(
            processes, {**os.environ, **variables}, limits, control=control, after=after
        )
        if control.stopped_at is not None:
            raise RunStopped(limits.stop.signal or "a request", control.stopped_at)
        return verdict


def _own_host(allocation: Allocation, seats: Sequence[Seat]) -> str:
    """The host name or address under which the ranks reach this process."""
    if given := os.environ.get("CKPTBENCH_LAUNCHER_HOST"):
        return given
    alone = all(seat.node == allocation.here for seat in seats)
    return "127.0.0.1" if alone else socket.gethostname()


def _variables(
    program: Program, seats: Sequence[Seat], control: ControlServer, threads: int | None
) -> dict[str, str]:
    shared = rank_environment(
        seats,
        threads=threads or max(1, granted_cores(os.environ) // ranks_a_node(seats)),
        control=control.address,
        token=control.token,
        logs=str(program.logs),
        launched=f"{boot_id()} {clock()} {time.time_ns()}",
    )
    if program.libraries:
        shared["LD_LIBRARY_PATH"] = os.pathsep.join(program.libraries)
    return {**shared, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def _cuda_libraries(python: Path) -> tuple[str, ...]:
    """Folders of the libraries in NVIDIA's wheels. CuPy finds cuDNN only where LD_LIBRARY_PATH names them."""
    wheels = python.parents[1].glob("lib/python3*/site-packages/nvidia/*/lib")
    return (*map(str, sorted(wheels)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")]))
