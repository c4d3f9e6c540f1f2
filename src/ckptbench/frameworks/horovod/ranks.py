"""Horovod without `horovodrun`: the environment variables that it would set, and the store through which ranks meet.

The ranks were started by the launcher. Horovod's gloo contexts find each other through a small key-value store over
HTTP. `horovodrun` would serve this store; here rank 0 does.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Self

from ckptbench.common.errors import LaunchError
from ckptbench.frameworks.contract import Framework
from ckptbench.run.control.ranks import RankContext

if TYPE_CHECKING:
    from horovod.runner.http.http_server import RendezvousHTTPServer

MEETING_SECONDS = 600


def environment(world: RankContext, *, deterministic: bool) -> dict[str, str]:
    """The variables from which Horovod's `init` learns the place of each rank and how to communicate.

    Two ranks are on the same host if their addresses name the same host. A rank's cross rank is its number among the
    ranks that have the same local rank, over all hosts.
    """
    # Gradients that are ready at the same time are fused into one buffer, so its content depends on timing. The
    # place of a number in the buffer decides the order of its sum. With three ranks or more, that changes bits:
    # https://horovod.readthedocs.io/en/stable/tensor-fusion_include.html
    unfused = {"HOROVOD_FUSION_THRESHOLD": "0"} if deterministic else {}
    hosts = [address.rpartition(":")[0] for address in world.addresses]
    own = hosts[world.rank]
    local_ranks = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    local_rank = local_ranks[world.rank]
    variables = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": own,
        "HOROVOD_RANK": world.rank,
        "HOROVOD_SIZE": world.world_size,
        "HOROVOD_LOCAL_RANK": local_rank,
        "HOROVOD_LOCAL_SIZE": hosts.count(own),
        "HOROVOD_CROSS_RANK": local_ranks[: world.rank].count(local_rank),
        "HOROVOD_CROSS_SIZE": local_ranks.count(local_rank),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": MEETING_SECONDS,
    }
    if interface := os.environ.get("GLOO_SOCKET_IFNAME"):  # run.control.joining has chosen it
        variables["HOROVOD_GLOO_IFACE"] = interface.partition(",")[0]
    if world.world_size > 1:
        host, _, port = world.addresses[0].rpartition(":")
        variables |= {"HOROVOD_GLOO_RENDEZVOUS_ADDR": host, "HOROVOD_GLOO_RENDEZVOUS_PORT": port}
    return {**{name: str(value) for name, value in variables.items()}, **unfused}


class OverHorovod(Framework):
    """The part of a rank that depends on Horovod alone. Subclasses name it as a base before that of the framework."""

    horovod: ClassVar[ModuleType]
    """Horovod's module for the framework."""
    _world: RankContext
    _server: RendezvousHTTPServer | None = None

    @classmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        os.environ |= environment(world, deterministic=deterministic)
        return super().join(world, seed=seed, deterministic=deterministic)

    def _connect(self) -> None:
        """Meet the other ranks. The variables of `environment` must be set. Returns when all ranks are there."""
        if self._world.world_size > 1 and self._world.rank == 0:
            self._server = _serve(self._world.addresses[0])
        elif self._world.world_size > 1:
            _await(self._world.addresses[0])
        self.horovod.init()

    def abort(self) -> None:
        """Shut Horovod down. Collectives fail in which other ranks still wait."""
        self.horovod.shutdown()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def close(self) -> None:
        self.barrier()
        self.abort()


def _serve(address: str) -> RendezvousHTTPServer:
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    host, _, port = address.rpartition(":")
    server = RendezvousHTTPServer((host, int(port)), RendezvousHandler, verbose=0)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _await(address: str) -> None:
    """Wait until rank 0 answers. Horovod itself waits for the store only 1.5 seconds."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + MEETING_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"rank 0 does not answer at {address} ({error}): did it die, or can the nodes not "
                    "reach each other?"
                ) from error
            time.sleep(0.05)
