"""Checks that each rank came up where it should, with a GPU of its own, and collects the addresses of all ranks."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import cache

from ckptbench.run.control.link import Hello
from ckptbench.run.control.ranks import RankAssignment, same_host

LOOPBACK = "127."


def objection(
    hello: Hello, assignments: Sequence[RankAssignment], others: Sequence[Hello]
) -> str | None:
    """Why this rank must not run where it came up; None if it may. `others` have come up already."""
    if not 0 <= hello.rank < len(assignments):
        return (
            f"rank {hello.rank} came up on {hello.node}, but the run has {len(assignments)} ranks"
        )
    meant = assignments[hello.rank].node
    if not same_host(hello.node, meant) and not _is_address_of(hello.address, meant):
        return f"rank {hello.rank} came up on {hello.node}, it was meant for {meant}"
    for other in others:
        if other.rank == hello.rank:
            return f"rank {hello.rank} came up twice, on {other.node} and {hello.node}"
        if (other.node, other.device) == (hello.node, hello.device) and hello.device != "cpu":
            return f"ranks {other.rank} and {hello.rank} share GPU {hello.device} of {hello.node}"
    return None


def _is_address_of(address: str, node: str) -> bool:
    """Whether the node's name resolves to the host of `address`, a `host:port`.

    A node may call itself by the name of another of its network interfaces.
    """
    return address.rpartition(":")[0] in _addresses_of(node)


@cache
def _addresses_of(node: str) -> list[str]:
    """Looked up once, because no other rank is served meanwhile."""
    try:
        return socket.gethostbyname_ex(node)[2]
    except OSError:
        return []


def addresses_of_ranks(hellos: Sequence[Hello]) -> list[str]:
    """`host:port` of every rank, by rank, as ranks on other hosts can reach it. `hellos` are those of all, by rank.

    A rank on the launcher's host may report a loopback address. It is replaced by the address at which ranks on
    other hosts reach the launcher.
    """
    outside = [h.launcher for h in hellos if not h.launcher.startswith(LOOPBACK)]
    return [
        f"{outside[0]}:{hello.address.rpartition(':')[2]}"
        if outside and hello.address.startswith(LOOPBACK)
        else hello.address
        for hello in hellos
    ]
