"""Starts the ranks of one run on what was allocated, and sees that all come up where they should and end well."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ckptbench import place
from ckptbench.allocation import Allocation, Seat, granted_cores, ranks_a_node
from ckptbench.control import ControlServer
from ckptbench.errors import RunStopped
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.plan import Plan
from ckptbench.recorder import boot_id, clock
from ckptbench.starters import rank_processes
from ckptbench.watch import Limits, run_processes

log = logging.getLogger(__name__)

SOURCE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every rank of a run executes."""

    command: list[str]
    logs: Path
    """The folder of `rank-<rank>.log`."""
    mpiexec: Path | None = None
    """What starts ranks that speak MPI; None: they do not."""
    libraries: tuple[str, ...] = ()
    """Folders for the loader's path."""


def launch(plan: Plan, allocation: Allocation, *, python: Path, logs: Path, limits: Limits) -> None:
    """Run every rank of `plan` on `allocation` with the interpreter `python` until all have ended well.

    Raises LaunchError with the last log lines of the rank that died first, after ending the others; also when
    the run takes longer than `limits` or the workflow that started this process is gone. Raises RunStopped where the
    ranks stopped as they were asked to.
    """
    # MPI comes with the framework's environment, so that its library and its launcher agree.
    speaks_mpi = FRAMEWORKS[plan.cell.framework].launcher == "mpiexec"
    program = Program(
        command=[str(python), "-m", "ckptbench.rank", str(plan.write())],
        logs=logs,
        mpiexec=python.parent / "mpiexec" if speaks_mpi else None,
        libraries=_cuda_libraries(python) if plan.cell.accelerator == "cuda" else (),
    )
    ranks_here = ranks_a_node(allocation.seats(plan.cell.ranks))
    cores = granted_cores(os.environ)
    if plan.cell.accelerator == "cpu" and ranks_here > cores:
        log.warning("%d ranks share %d cores: their times say little", ranks_here, cores)
    run_ranks(program, plan.cell.ranks, allocation, limits)


def run_ranks(
    program: Program,
    ranks: int,
    allocation: Allocation,
    limits: Limits,
    *,
    threads: int | None = None,
) -> None:
    """Start the program in so many ranks, and see that all come up where they should and end well.

    Each computes with `threads`; None: with its share of the cores of its node, taken to be like this one.
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
        run_processes(processes, {**os.environ, **variables}, limits, control)
        if control.stopped_at is not None:
            raise RunStopped(limits.stop.signal or "a request", control.stopped_at)


def _own_host(allocation: Allocation, seats: Sequence[Seat]) -> str:
    """By what name the ranks reach this process."""
    if given := os.environ.get("CKPTBENCH_LAUNCHER_HOST"):
        return given
    alone = all(seat.node == allocation.here for seat in seats)
    return "127.0.0.1" if alone else socket.gethostname()


def _variables(
    program: Program, seats: Sequence[Seat], control: ControlServer, threads: int | None
) -> dict[str, str]:
    shared = place.rank_environment(
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
    """Where NVIDIA's wheels lay their libraries: CuPy finds cuDNN on the loader's path alone."""
    wheels = python.parents[1].glob("lib/python3*/site-packages/nvidia/*/lib")
    return (*map(str, sorted(wheels)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")]))
