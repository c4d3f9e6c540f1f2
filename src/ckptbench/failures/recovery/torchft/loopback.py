"""torchft without a network: its servers on the loopback interface alone, and states that come without code.

torchft asks nobody for a secret. By itself the manager, the transport and the store of every rank answer on all interfaces of the
host. Whoever reaches them can read the model, end the rank, or tell its manager where the next rank that is behind should
fetch its state, which torchft would then unpickle: whatever code that says would run in the rank.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import torchft.manager
from torch.distributed import TCPStore
from torch.distributed._serialization import _streaming_load
from torchft import Manager
from torchft.checkpointing import http_transport

from ckptbench.common.errors import LaunchError

LOOPBACK = "127.0.0.1"


def open_store() -> TCPStore:
    """A store that listens on the loopback interface."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        return TCPStore(
            LOOPBACK,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),  # it closes it
        )


def open_manager(store: TCPStore, *, timeout: timedelta, **given: Any) -> Manager:
    """A manager that meets its own rank alone in `store`, with a transport. `given` are other arguments of torchft's Manager."""
    with _on_loopback():
        return Manager(
            rank=0,
            world_size=1,
            store_addr=LOOPBACK,
            store_port=store.port,
            hostname=LOOPBACK,
            timeout=timeout,
            checkpoint_transport=Transport(timeout=timeout, num_chunks=0),
            **given,
        )


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Servers that torchft makes meanwhile listen on the loopback interface. It has no setting for that."""
    manager_server, http_server = torchft.manager.ManagerServer, http_transport._IPv6HTTPServer

    def bound(*, bind: str, **given: Any) -> Any:
        return manager_server(bind=f"{LOOPBACK}:{bind.rpartition(':')[2]}", **given)

    torchft.manager.ManagerServer = bound
    http_transport._IPv6HTTPServer = _Server
    try:
        yield
    finally:
        torchft.manager.ManagerServer = manager_server
        http_transport._IPv6HTTPServer = http_server


class _Server(http_transport._IPv6HTTPServer):
    address_family = socket.AF_INET

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        super().__init__((LOOPBACK, address[1]), handler)


class Transport(http_transport.HTTPTransport):
    """It fetches from this host alone, by no proxy, and loads tensors and numbers: nothing in a state can run."""

    def address(self) -> str:
        """By itself it would give the host's name, which need not be known to any name service."""
        return f"http://{LOOPBACK}:{self._server.server_port}/checkpoint/"

    @classmethod
    def _load_from_address(cls, address: str, timeout: timedelta) -> object:
        asked = urlsplit(address)
        if (asked.scheme, asked.hostname) != ("http", LOOPBACK):
            raise LaunchError(
                f"torchft was asked to fetch a rank's state from {address}, which is not on this host: it is not fetched"
            )
        connection = HTTPConnection(LOOPBACK, asked.port or 0, timeout=timeout.total_seconds())
        try:
            connection.request("GET", asked.path)
            answer = connection.getresponse()
            if answer.status != 200:
                raise LaunchError(
                    f"{address} gives no state of a rank ({answer.status} {answer.reason})"
                )
            return _streaming_load(answer, weights_only=True)
        finally:
            connection.close()
