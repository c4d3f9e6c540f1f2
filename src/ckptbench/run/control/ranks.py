"""Which node each rank of a run is on, and what one rank knows of itself and the others."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """The node of one rank, and its number (`local_rank`, from 0) among the ranks of that node."""

    rank: int
    node: str
    local_rank: int


def assign_ranks(nodes: list[str]) -> tuple[RankAssignment, ...]:
    """The assignments of ranks 0, 1, ..., given the node of each rank."""
    taken: Counter[str] = Counter()
    assignments = []
    for rank, node in enumerate(nodes):
        assignments.append(RankAssignment(rank, node, taken[node]))
        taken[node] += 1
    return tuple(assignments)


def ranks_a_node(assignments: Sequence[RankAssignment]) -> int:
    """Number of ranks on the node with the most ranks."""
    return 1 + max(assignment.local_rank for assignment in assignments)


def same_host(one: str, other: str) -> bool:
    """Whether two names, each with or without its domain, name the same host. Addresses must be equal."""
    if one.replace(".", "").isdigit():  # an address has no domain
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
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
    nodes: tuple[str, ...] = ()
    """The node of every rank, by rank. Empty: all are on this one."""

    @property
    def is_spread(self) -> bool:
        """Whether the ranks are on several nodes."""
        return len(set(self.nodes)) > 1

    @property
    def ranks_here(self) -> tuple[int, ...]:
        """The ranks of this node. The first of them is the one whose `local_rank` is 0."""
        if not self.nodes:
            return tuple(range(self.world_size))
        return tuple(rank for rank, node in enumerate(self.nodes) if node == self.node)


def world_among(world: RankContext, ranks: Sequence[int]) -> RankContext:
    """This rank among the others when `ranks` alone train: survivors of a failure, or all again.

    In it they are numbered from 0, in their order. Raises ValueError if this rank is none of them.
    """
    nodes = world.nodes or (world.node,) * world.world_size
    assignments = assign_ranks([nodes[rank] for rank in ranks])
    own = list(ranks).index(world.rank)
    return dataclasses.replace(
        world,
        rank=own,
        world_size=len(assignments),
        local_rank=assignments[own].local_rank,
        addresses=tuple(world.addresses[rank] for rank in ranks),
        nodes=tuple(assignment.node for assignment in assignments) if world.nodes else (),
    )
