"""What the launcher tells a rank, and how the rank reads it: environment variables."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckptbench.allocation import Seat, seats_of
from ckptbench.errors import LaunchError
from ckptbench.frameworks.base import Place
from ckptbench.link import Link

RANK = "CKPTBENCH_RANK"
THREADS = "CKPTBENCH_THREADS"
NODES = "CKPTBENCH_NODES"
"""The node of each rank, by rank."""
CONTROL = "CKPTBENCH_CONTROL"
"""`host:port` of the launcher."""
TOKEN = "CKPTBENCH_TOKEN"
"""By which the launcher knows its own ranks."""
LOGS = "CKPTBENCH_LOGS"
"""The folder into which each rank writes `rank-<rank>.log`."""
LAUNCHED = "CKPTBENCH_LAUNCHED"
"""Just before the launcher started the ranks: its host's boot id, CLOCK_MONOTONIC and CLOCK_REALTIME in ns."""

# Who is who, mpiexec and srun say themselves: all their ranks get the same environment.
_RANK_SOURCES = (RANK, "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def rank_environment(
    seats: Sequence[Seat], *, threads: int, control: str, token: str, logs: str, launched: str
) -> dict[str, str]:
    """The variables that are the same for all ranks of a run."""
    # One number for every library that may compute: oversubscribed threads would be timed as training.
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
    """This rank's seat, and the number of ranks. Raises LaunchError outside of a launcher."""
    rank = next((int(environment[name]) for name in _RANK_SOURCES if name in environment), None)
    if rank is None or NODES not in environment:
        raise LaunchError(
            f"neither of {', '.join(_RANK_SOURCES)} is set: ranks are started by scripts/train_cell.py"
        )
    seats = seats_of(environment[NODES].split(","))
    if rank >= len(seats):
        raise LaunchError(f"rank {rank} was started, but the run has {len(seats)} ranks")
    return seats[rank], len(seats)


def take_place(*, accelerator: str) -> tuple[Place, Link]:
    """Pin this rank to its cores and its GPU, and meet the launcher and the other ranks.

    Call it before the framework is imported. Raises LaunchError where its place is not what was meant.
    """
    seat, ranks = read_seat()
    threads = int(os.environ[THREADS])
    pin(seat.local_rank, threads)
    node = node_name()
    link = Link.open(os.environ[CONTROL], os.environ[TOKEN], rank=seat.rank, node=node)
    device = "cpu" if accelerator == "cpu" else see_one_gpu(seat)
    link.meet(rank=seat.rank, node=node, device=device)
    if ranks > 1:
        _choose_interface(link.addresses[seat.rank])
    place = Place(
        rank=seat.rank,
        world_size=ranks,
        local_rank=seat.local_rank,
        node=seat.node,
        threads=threads,
        addresses=link.addresses,
        accelerator=accelerator,
    )
    return place, link


def node_name() -> str:
    """This host, as the scheduler calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def pin(local_rank: int, threads: int) -> None:
    """Keep this rank on cores of its own, where there are enough: a rank that wanders is timed as noise."""
    cores = sorted(os.sched_getaffinity(0))
    first = local_rank * threads
    if first + threads <= len(cores):
        os.sched_setaffinity(0, cores[first : first + threads])


def see_one_gpu(seat: Seat) -> str:
    """Leave this rank the GPU of its own, which is then the first of all for its framework; returns which.

    Raises LaunchError where the host has fewer GPUs than ranks.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        devices = [str(n) for n in range(_installed_gpus())]
    else:  # empty: the scheduler gave none, whatever is installed
        devices = [word for word in visible.split(",") if word]
    if seat.local_rank >= len(devices):
        raise LaunchError(
            f"rank {seat.rank} is number {seat.local_rank + 1} on {seat.node}, which has {len(devices)} "
            "visible GPUs: one rank needs one GPU; use fewer ranks a node, or accelerator: cpu"
        )
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[seat.local_rank]
    return devices[seat.local_rank]


def _installed_gpus() -> int:
    """As the NVIDIA driver lists them."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def _choose_interface(address: str) -> None:
    """Gloo takes the interface of the host's own name, which on many hosts is loopback; take the one in use."""
    name = interface_of(address.rpartition(":")[0])
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_of(ip: str) -> str | None:
    """The network interface that has this IPv4 address, None where none has (netdevice(7), SIOCGIFADDR)."""
    get_interface_address = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), get_interface_address, request)
            except OSError:  # it has no IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == ip:
                return name
    return None


def ignore_stop_signals() -> None:
    """Schedulers signal every process of a job: the launcher alone acts, and tells its ranks.

    A rank without launcher ends all the same: it sees the line to it break.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the one that started it is gone (prctl(2), PR_SET_PDEATHSIG).

    Right after a fork say which process is meant: it may be gone before the kernel has been asked.
    """
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
