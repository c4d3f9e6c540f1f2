"""Seats: the node of each rank of a run. Place: all that one rank knows about its seat and the other ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """The node of one rank, and its number (`local_rank`, from 0) among the ranks of that node."""

    rank: int
    node: str
    local_rank: int


def seats_of(nodes: list[str]) -> tuple[Seat, ...]:
    """The seats of ranks 0, 1, ..., given the node of each rank."""
    taken: Counter[str] = Counter()
    seats = []
    for rank, node in enumerate(nodes):
        seats.append(Seat(rank, node, taken[node]))
        taken[node] += 1
    return tuple(seats)


def ranks_a_node(seats: Sequence[Seat]) -> int:
    """Number of ranks on the node with the most ranks."""
    return 1 + max(seat.local_rank for seat in seats)


def same_host(one: str, other: str) -> bool:
    """Whether two names, each with or without its domain, name the same host. Addresses must be equal."""
    if one.replace(".", "").isdigit():  # an address has no domain
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The position of one rank among the others, from its launcher."""

    rank: int
    world_size: int
    local_rank: int
    node: str
    threads: int
    """Number of threads with which the rank may compute."""
    addresses: tuple[str, ...]
    """`host:port` of every rank, by rank, for a framework's rendezvous. Each port was free when its rank chose it."""
    accelerator: str = "cpu"
    """`cpu` or `cuda`. With `cuda` the rank sees only its own GPU, as device 0."""
