"""The environment variables that a launcher sets for its ranks: their names, writing and reading."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

from ckptbench.common.errors import LaunchError
from ckptbench.run.control.ranks import RankAssignment, assign_ranks, same_host

RANK = "CKPTBENCH_RANK"
THREADS = "CKPTBENCH_THREADS"
NODES = "CKPTBENCH_NODES"
"""The node of each rank, in the order of the ranks, separated by commas."""
CONTROL = "CKPTBENCH_CONTROL"
"""`host:port` of the launcher."""
TOKEN = "CKPTBENCH_TOKEN"
"""Secret that a rank sends so that the launcher accepts it."""
LOGS = "CKPTBENCH_LOGS"
"""The folder into which each rank writes `rank-<rank>.log`."""
LAUNCHED = "CKPTBENCH_LAUNCHED"
"""The instant just before the launcher started the ranks (`common.clock.Instant`)."""
STARTED = "CKPTBENCH_STARTED"
"""Seconds from the boot of the host to the start of this rank. Set by programs that start ranks again by themselves."""

LOCAL_RANK_SOURCE = "CKPTBENCH_LOCAL_RANK_SOURCE"
"""The name of the variable in which the program that starts the ranks tells a rank its number on its node."""

RANK_SOURCE = "CKPTBENCH_RANK_SOURCE"
"""As LOCAL_RANK_SOURCE, for the rank's number in the run."""
SLURM_RANK = "SLURM_PROCID"
"""The number of a task of srun. The task may be a rank, or a program that starts the ranks of a node."""

# mpiexec gives all ranks the same environment and sets each rank's number in a variable of its own.
RANK_SOURCES = (RANK, "PMI_RANK", "OMPI_COMM_WORLD_RANK")

TUNABLES = "GLIBC_TUNABLES"
STEADY_HEAP = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1"
)
"""For glibc 2.26 or later (The GNU C Library, Memory Allocation Tunables): memory that the main thread has taken is kept, in huge
pages where the kernel and glibc 2.35 have them.

Else chance decides in each process, by what lies where in its heap, how much memory every step gives back and takes again, page
by page: all steps of one run are 5 to 10 % slower than those of another, and a checkpoint is enough to change it.
"""
OF_THE_HEAP = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
"""Other variables that say the same."""


def steady_heap(environment: Mapping[str, str]) -> dict[str, str]:
    """`STEADY_HEAP` beside the user's other tunables; or what the user has chosen for the heap, for ranks on other nodes, too."""
    chosen = {name: environment[name] for name in OF_THE_HEAP if name in environment}
    tunables = environment.get(TUNABLES, "")
    if not chosen and "glibc.malloc." not in tunables:
        return {TUNABLES: ":".join(filter(None, (tunables, STEADY_HEAP)))}
    return {**chosen, TUNABLES: tunables} if tunables else chosen


def rank_environment(
    assignments: Sequence[RankAssignment],
    *,
    threads: int,
    control: str,
    token: str,
    logs: str,
    launched: str,
) -> dict[str, str]:
    """The variables that have the same value for all ranks of a run."""
    # The same number for every numerical library: more threads than cores would slow down training.
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        THREADS: str(threads),
        NODES: ",".join(assignment.node for assignment in assignments),
        CONTROL: control,
        TOKEN: token,
        LOGS: logs,
        LAUNCHED: launched,
        **dict.fromkeys(pools, str(threads)),
    }


def node_name(environment: Mapping[str, str] = os.environ) -> str:
    """Name of this host: the scheduler's name for it if there is a scheduler."""
    return environment.get("SLURMD_NODENAME") or socket.gethostname()


def ranks_here(environment: Mapping[str, str]) -> list[int]:
    """The ranks of the run that belong on the node of the process with this environment."""
    nodes = environment[NODES].split(",")
    if len(set(nodes)) == 1:  # whatever the host calls itself
        return list(range(len(nodes)))
    own = node_name(environment)
    return [rank for rank, node in enumerate(nodes) if same_host(node, own)]


def rank_of(environment: Mapping[str, str]) -> int | None:
    """The rank of the process with this environment; None if the process is no rank."""
    if source := environment.get(LOCAL_RANK_SOURCE):
        return ranks_here(environment)[int(environment[source])] if source in environment else None
    sources = (*RANK_SOURCES, environment.get(RANK_SOURCE, RANK))
    return next((int(environment[name]) for name in sources if name in environment), None)


def read_assignment(environment: Mapping[str, str] = os.environ) -> tuple[RankAssignment, int]:
    """This rank's assignment, and the number of ranks. Raises LaunchError in a process that no launcher started."""
    rank = rank_of(environment)
    if rank is None or NODES not in environment:
        raise LaunchError(
            f"none of {', '.join((*RANK_SOURCES, SLURM_RANK))} is set, or {NODES} is not: ranks are started by `python -m ckptbench.workflow train-cell`"
        )
    assignments = assign_ranks(environment[NODES].split(","))
    if rank >= len(assignments):
        raise LaunchError(f"rank {rank} was started, but the run has {len(assignments)} ranks")
    return assignments[rank], len(assignments)
