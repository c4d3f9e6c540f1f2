"""What the launcher tells a rank, and how the rank reads it: environment variables."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from ckptbench.errors import LaunchError
from ckptbench.frameworks.base import Place

RANK = "CKPTBENCH_RANK"
WORLD_SIZE = "CKPTBENCH_WORLD_SIZE"
THREADS = "CKPTBENCH_THREADS"
ADDRESSES = "CKPTBENCH_ADDRESSES"
LOGS = "CKPTBENCH_LOGS"
"""The folder into which each rank writes `rank-<rank>.log`."""
LAUNCHED_NS = "CKPTBENCH_LAUNCHED_NS"
"""The launcher's CLOCK_MONOTONIC just before it started the ranks."""

# Under mpiexec all ranks get the same environment; who is who, MPI's process manager says.
_RANK_SOURCES = (RANK, "PMI_RANK", "OMPI_COMM_WORLD_RANK")


def rank_environment(
    *, ranks: int, threads: int, addresses: tuple[str, ...], logs: str, launched_ns: int
) -> dict[str, str]:
    """The variables that are the same for all ranks of one host."""
    # One number for every library that may compute: oversubscribed threads would be timed as training.
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        WORLD_SIZE: str(ranks),
        THREADS: str(threads),
        ADDRESSES: ",".join(addresses),
        LOGS: logs,
        LAUNCHED_NS: str(launched_ns),
        **dict.fromkeys(pools, str(threads)),
    }


def read_place(environment: Mapping[str, str] = os.environ, *, accelerator: str) -> Place:
    """This rank's place. Raises LaunchError outside of a launcher."""
    rank = next((int(environment[name]) for name in _RANK_SOURCES if name in environment), None)
    if rank is None or WORLD_SIZE not in environment:
        raise LaunchError(
            f"neither of {', '.join(_RANK_SOURCES)} is set: ranks are started by scripts/train_cell.py"
        )
    return Place(
        rank=rank,
        world_size=int(environment[WORLD_SIZE]),
        local_rank=rank,
        threads=int(environment[THREADS]),
        addresses=tuple(environment[ADDRESSES].split(",")),
        accelerator=accelerator,
    )


def pin(place: Place) -> None:
    """Keep this rank on cores of its own, where there are enough: a rank that wanders is timed as noise."""
    cores = sorted(os.sched_getaffinity(0))
    first = place.local_rank * place.threads
    if first + place.threads <= len(cores):
        os.sched_setaffinity(0, cores[first : first + place.threads])


def see_one_gpu(place: Place) -> None:
    """Leave this rank the GPU of its own, which is then the first of all for its framework.

    Call it before the framework is imported. Raises LaunchError where the host has fewer GPUs than ranks.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(n) for n in range(_installed_gpus())]
    if place.local_rank >= len(devices):
        raise LaunchError(
            f"rank {place.rank} is number {place.local_rank + 1} on its host, which has {len(devices)} "
            "visible GPUs: one rank needs one GPU; use fewer ranks, or accelerator: cpu"
        )
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[place.local_rank]


def _installed_gpus() -> int:
    """As the NVIDIA driver lists them."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it is gone (prctl(2), PR_SET_PDEATHSIG)."""
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
