"""A rank joins the others: it takes its cores, its GPU, and its network interface to them."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import socket
import struct
from pathlib import Path

from ckptbench.common.errors import LaunchError
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankAssignment, RankContext
from ckptbench.run.control.variables import (
    CONTROL,
    NODES,
    THREADS,
    TOKEN,
    node_name,
    read_assignment,
)

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPU_LIST, DEVICES = Path("/proc/driver/nvidia/gpus"), Path("/dev")
GPU_NAME = re.compile(r"\d+|(GPU|MIG)-.+")


def join_ranks(*, accelerator: str) -> tuple[RankContext, Link]:
    """Pin this rank to its cores and its GPU, connect to the launcher, and wait until all ranks have come up.

    Call it before the framework is imported. Raises LaunchError if this rank is not where it should be.
    """
    assignment, ranks = read_assignment()
    threads = int(os.environ[THREADS])
    pin(assignment.local_rank, threads)
    node = node_name()
    link = Link.open(os.environ[CONTROL], os.environ[TOKEN], rank=assignment.rank, node=node)
    device = "cpu" if accelerator == "cpu" else see_one_gpu(assignment)
    link.rendezvous(rank=assignment.rank, node=node, device=device)
    if ranks > 1:
        _choose_interface(link.addresses[assignment.rank])
    world = RankContext(
        rank=assignment.rank,
        world_size=ranks,
        local_rank=assignment.local_rank,
        node=assignment.node,
        threads=threads,
        addresses=link.addresses,
        accelerator=accelerator,
        nodes=tuple(os.environ[NODES].split(",")),
    )
    return world, link


def pin(local_rank: int, threads: int) -> None:
    """Keep this rank on its own cores, if the host has enough. Moves between cores would add noise to times."""
    cores = sorted(os.sched_getaffinity(0))
    first = local_rank * threads
    if first + threads <= len(cores):
        os.sched_setaffinity(0, cores[first : first + threads])


def see_one_gpu(assignment: RankAssignment) -> str:
    """Hide all GPUs but this rank's own from its framework, and return the name of that one.

    Raises LaunchError if the host has fewer GPUs than ranks, or names one of them twice.
    """
    visible = os.environ.get(VISIBLE)
    devices = _installed_gpus() if visible is None else _visible_gpus(visible)
    if assignment.local_rank >= len(devices):
        gpus = "1 visible GPU" if len(devices) == 1 else f"{len(devices)} visible GPUs"
        given = "" if visible is None else f" ({VISIBLE} is {visible!r})"
        raise LaunchError(
            f"rank {assignment.rank} is number {assignment.local_rank + 1} on {assignment.node}, which has {gpus}{given}: "
            "one rank needs one GPU; use fewer ranks a node, or accelerator: cpu"
        )
    os.environ[VISIBLE] = devices[assignment.local_rank]
    return devices[assignment.local_rank]


def _visible_gpus(words: str) -> list[str]:
    """What the CUDA driver reads from this list: it ends before the first entry that names no GPU, as `-1` and `NoDevFiles`.

    Source: CUDA C++ Programming Guide, CUDA Environment Variables.
    """
    names = [word.strip() for word in words.split(",")]
    known = list(itertools.takewhile(GPU_NAME.fullmatch, names))
    if len(set(known)) < len(known):
        raise LaunchError(
            f"{VISIBLE} is {words!r}, which names a GPU twice: CUDA would then use none; name each once"
        )
    return known


def _installed_gpus() -> list[str]:
    """The numbers of the GPUs that the NVIDIA driver lists. In a container that hides its list the devices tell."""
    found = [*GPU_LIST.glob("*")] or [*DEVICES.glob("nvidia[0-9]*")]
    return [str(number) for number, _ in enumerate(found)]


def _choose_interface(address: str) -> None:
    """Have Gloo use the network interface with this `host:port`.

    By itself Gloo would use the interface that belongs to the host's own name, which is loopback on many hosts.
    """
    name = interface_of(address.rpartition(":")[0])
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_of(ip: str) -> str | None:
    """Name of the network interface with this IPv4 address; None if there is none (netdevice(7), SIOCGIFADDR)."""
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
