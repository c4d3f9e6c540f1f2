"""The environment variables that a launcher sets for its ranks: their names, writing and reading."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ckptbench.errors import LaunchError
from ckptbench.world.seats import Seat, seats_of

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
"""Boot id, CLOCK_MONOTONIC and CLOCK_REALTIME (ns) of the launcher's host, just before it started the ranks."""


# mpiexec and srun give all ranks the same environment and set each rank's number in a variable of their own.
_RANK_SOURCES = (RANK, "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def rank_environment(
    seats: Sequence[Seat], *, threads: int, control: str, token: str, logs: str, launched: str
) -> dict[str, str]:
    """The variables that have the same value for all ranks of a run."""
    # The same number for every numerical library: more threads than cores would slow down training.
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        THREADS: str(threads),
        NODES: ",".join(seat.node for seat in seats),
        CONTROL: control,
        TOKEN: token,
        LOGS: logs,
        LAUNCHED: launched,
        **dict.fromkeys(pools, str(threads)),
    }


def read_seat(environment: Mapping[str, str] = os.environ) -> tuple[Seat, int]:
    """This rank's seat, and the number of ranks. Raises LaunchError in a process that no launcher started."""
    rank = next((int(environment[name]) for name in _RANK_SOURCES if name in environment), None)
    if rank is None or NODES not in environment:
        raise LaunchError(
            f"none of {', '.join(_RANK_SOURCES)} is set, or {NODES} is not: ranks are started by scripts/train_cell.py"
        )
    seats = seats_of(environment[NODES].split(","))
    if rank >= len(seats):
        raise LaunchError(f"rank {rank} was started, but the run has {len(seats)} ranks")
    return seats[rank], len(seats)
