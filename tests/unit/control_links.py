"""Ranks of a ControlServer: links, or bare connections where a test says what comes over the line."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ckptbench.run.control.link import Link
from ckptbench.run.control.server import ControlServer

MakeServer = Callable[..., ControlServer]
PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""


def open_link(server: ControlServer, rank: int, node: str, device: str = "cpu") -> Link:
    link = Link.open(server.address, server.token, rank=rank, node=node)
    link.rendezvous(rank=rank, node=node, device=device)
    return link


def open_links(server: ControlServer, *nodes: str) -> list[Link]:
    """One for each rank; a rank returns only when all have come."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        opened = [pool.submit(open_link, server, rank, node) for rank, node in enumerate(nodes)]
        return [each.result(PATIENCE_S) for each in opened]


def close(links: list[Link]) -> None:
    for link in links:
        link.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s"
        time.sleep(0.005)


def call(server: ControlServer) -> socket.socket:
    host, _, port = server.address.partition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def said(*messages: dict[str, object]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def hello(server: ControlServer, rank: int, node: str, **fields: object) -> bytes:
    """What a rank says first."""
    usual = {"device": "cpu", "address": "127.0.0.1:1", "launcher": "127.0.0.1"}
    return said(
        {"token": server.token, "rank": rank}, {"rank": rank, "node": node, **usual, **fields}
    )
