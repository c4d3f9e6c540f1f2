"""Starts the ranks of one run on the allocated nodes, and checks that all start in their places and end well."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from ckptbench.common.clock import Instant
from ckptbench.common.errors import RunStopped
from ckptbench.common.processes import living_with
from ckptbench.common.removal import remove_or_warn
from ckptbench.common.shared_memory import MPICH, named_segments, remove_unused
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.launch.allocation import Allocation, granted_cores
from ckptbench.launch.inheritance import inherited
from ckptbench.launch.limits import Limits
from ckptbench.launch.starters import HANDED, Program, rank_processes
from ckptbench.launch.watch import Between, give_up, run_processes
from ckptbench.run.control.ranks import RankAssignment, ranks_a_node
from ckptbench.run.control.server import ControlServer
from ckptbench.run.control.variables import TOKEN, rank_environment, steady_heap

log = logging.getLogger(__name__)

SOURCE = Path(__file__).resolve().parents[2]
END_SECONDS = 60.0
"""Time that ranks may take to end after their mpiexec has ended."""
POLL_SECONDS = 0.1


def run_ranks(
    program: Program,
    ranks: int,
    allocation: Allocation,
    limits: Limits,
    *,
    threads: int | None = None,
    after: Callable[[Loss], Verdict] = give_up,
    between: Between | None = None,
) -> bool:
    """Start the program in this number of ranks, and check that all start in their places and end well.

    Each rank computes with `threads` threads. None: with its share of the node's cores; all nodes are assumed to have
    as many cores as this one. `after` decides what to do when a rank has died, and `between` is called between attempts where
    the program starts ranks anew itself.

    Returns whether `after` wants them started again. Raises LaunchError if it gives up: the other ranks are ended first,
    and the error quotes the last log lines of the rank that died first. Raises LaunchError too if the run takes longer than
    `limits` allows, or if the workflow that started this process is gone. Raises RunStopped if the ranks stopped because they were asked to.
    """
    assignments = allocation.assignments(ranks)
    program.logs.mkdir(parents=True, exist_ok=True)
    for left in program.logs.glob(HANDED):  # by a launcher that was killed
        remove_or_warn(left)
    with closing(ControlServer(assignments, host=_own_host(allocation, assignments))) as control:
        variables = _variables(program, assignments, control, threads)
        processes = rank_processes(program, allocation, assignments, variables)
        with _segments_removed(control.token) if program.mpiexec else nullcontext():
            verdict = run_processes(
                processes,
                {**inherited(os.environ), **variables},
                limits,
                control,
                after=after,
                between=between,
            )
        if control.stopped_at is not None:
            raise RunStopped(limits.stop.signal or "a request", control.stopped_at)
        return verdict


@contextmanager
def _segments_removed(token: str) -> Iterator[None]:
    """Remove the shared memory that the ranks on this node, which `token` marks, have left behind when they have ended.

    MPI's start makes it, and the ranks remove its name when all of them have found it. One that is killed in between
    cannot. What was there before, and what any process uses, stays.
    """
    before = named_segments(MPICH)
    try:
        yield
    finally:
        deadline = time.monotonic() + END_SECONDS
        while named_segments(MPICH) - before and living_with(TOKEN, token):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        for path in remove_unused(named_segments(MPICH) - before):
            log.info("removed %s, which a rank has left behind", path)


def _own_host(allocation: Allocation, assignments: Sequence[RankAssignment]) -> str:
    """The host name or address under which the ranks reach this process."""
    if given := os.environ.get("CKPTBENCH_LAUNCHER_HOST"):
        return given
    alone = all(assignment.node == allocation.here for assignment in assignments)
    return "127.0.0.1" if alone else socket.gethostname()


def _variables(
    program: Program,
    assignments: Sequence[RankAssignment],
    control: ControlServer,
    threads: int | None,
) -> dict[str, str]:
    shared = rank_environment(
        assignments,
        threads=threads or max(1, granted_cores(os.environ) // ranks_a_node(assignments)),
        control=control.address,
        token=control.token,
        logs=str(program.logs),
        launched=str(Instant.now()),
    )
    if program.libraries:
        shared["LD_LIBRARY_PATH"] = os.pathsep.join(program.libraries)
    own = {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    return {**steady_heap(os.environ), **shared, **program.variables, **own}
