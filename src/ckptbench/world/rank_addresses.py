"""Checks that each rank came up in its assignment, with a GPU of its own, and collects the addresses of all ranks."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from contextlib import suppress

from ckptbench.world.link import Hello
from ckptbench.world.ranks import RankAssignment, same_host

LOOPBACK = "127."


class RankReports:
    """The assignments of a run, and the reports of the ranks that have taken them."""

    def __init__(self, assignments: Sequence[RankAssignment]) -> None:
        self.assignments = assignments
        self.hellos: dict[int, Hello] = {}
        """The last report of each rank that has come up, by rank."""
        self._gpus: dict[tuple[str, str], int] = {}
        """The rank that has the GPU, by node and device."""
        self._node_addresses: dict[str, list[str]] = {}

    @property
    def is_full(self) -> bool:
        """Whether every rank has come up."""
        return len(self.hellos) == len(self.assignments)

    @property
    def empty(self) -> list[RankAssignment]:
        """The assignments whose rank has not come up."""
        return [assignment for assignment in self.assignments if assignment.rank not in self.hellos]

    def objection(self, hello: Hello, absent: Collection[int]) -> str | None:
        """Why this rank must not run where it came up; None if it may. The assignments of `absent` ranks may be taken again."""
        if not 0 <= hello.rank < len(self.assignments):
            return f"rank {hello.rank} came up on {hello.node}, but the run has {len(self.assignments)} ranks"
        if hello.rank in self.hellos and hello.rank not in absent:
            return f"rank {hello.rank} came up twice, on {self.hellos[hello.rank].node} and {hello.node}"
        meant = self.assignments[hello.rank].node
        if not same_host(hello.node, meant) and not self._is_address_of(hello.address, meant):
            return f"rank {hello.rank} came up on {hello.node}, it was meant for {meant}"
        other = self._gpus.get((hello.node, hello.device))
        if other is not None and other != hello.rank:
            return f"ranks {other} and {hello.rank} share GPU {hello.device} of {hello.node}"
        return None

    def _is_address_of(self, address: str, node: str) -> bool:
        """Whether the node's name resolves to the host of `address`, a `host:port`.

        A node may call itself by the name of another of its network interfaces. Each name is resolved once, because no
        other rank is served meanwhile.
        """
        if node not in self._node_addresses:
            with suppress(OSError):
                self._node_addresses[node] = socket.gethostbyname_ex(node)[2]
        return address.rpartition(":")[0] in self._node_addresses.get(node, ())

    def take(self, hello: Hello) -> None:
        """Note that this rank has its assignment."""
        self.hellos[hello.rank] = hello
        if hello.device != "cpu":
            self._gpus[hello.node, hello.device] = hello.rank

    def clear(self) -> None:
        """Note that all ranks have left their assignments."""
        self.hellos.clear()
        self._gpus.clear()

    def addresses(self) -> list[str]:
        """`host:port` of every rank, by rank, as ranks on other hosts can reach it. Call it when all have come up.

        A rank on the launcher's host may report a loopback address. It is replaced by the address at which ranks on
        other hosts reach the launcher.
        """
        hellos = [self.hellos[assignment.rank] for assignment in self.assignments]
        outside = [h.launcher for h in hellos if not h.launcher.startswith(LOOPBACK)]
        return [
            f"{outside[0]}:{hello.address.rpartition(':')[2]}"
            if outside and hello.address.startswith(LOOPBACK)
            else hello.address
            for hello in hellos
        ]
