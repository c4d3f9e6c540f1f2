"""Listens where ranks come from, and nowhere else.

A launcher tells its ranks the name of its host. What that name stands for may differ from node to node: in many a
`/etc/hosts` it is a loopback address on the host itself, and a name service gives the others the address of one of
several networks. So the launcher listens at the addresses for which the name stands here, and at those by which this
host reaches the other nodes. All have the same port.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

log = logging.getLogger(__name__)

LOOPBACK = "127."
BACKLOG = 1024
"""Connections that may wait until they are accepted. The kernel may allow fewer; the other ranks then try again."""
ASKED_NODES = 3
"""The nodes of a job are on the same networks, so the way to some of them is the way to all."""
TRIES = 20
"""How often a port is chosen anew because another process has it at one of the addresses."""
NOWHERE_PORT = 9
EVERY_ADDRESS = ""


def listen(host: str, nodes: Sequence[str] = ()) -> list[socket.socket]:
    """Sockets that listen, all at the same port, for ranks on these nodes, which call this host `host`.

    If `host` is an address, they listen there alone. If nothing says how other nodes reach this host, they listen at
    every address.
    """
    if _is_address(host):
        found = {host} if _is_own(host) else set()
    else:
        found = {*filter(_is_own, _addresses(host)), *_ways(nodes)}
        if all(address.startswith(LOOPBACK) for address in found):
            found = set()
    if not found:
        log.info(
            "no address of this host is known as %s: the launcher listens at all of them", host
        )
    return _bound(sorted(found) or [EVERY_ADDRESS])


def _is_address(host: str) -> bool:
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return host.count(".") == 3


def _addresses(host: str) -> list[str]:
    """The IPv4 addresses for which the name stands."""
    try:
        return socket.gethostbyname_ex(host)[2]
    except OSError:
        return []


def _is_own(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _ways(nodes: Iterable[str]) -> list[str]:
    """The addresses of this host from which it would reach these nodes; no packet is sent."""
    found = []
    for node in list(dict.fromkeys(nodes))[:ASKED_NODES]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((node, NOWHERE_PORT))
            except OSError:  # its name or the way to it is not known
                continue
            found.append(probe.getsockname()[0])
    return [address for address in found if not address.startswith(LOOPBACK)]


def _bound(addresses: Sequence[str]) -> list[socket.socket]:
    for _ in range(TRIES - 1):
        try:
            return _bound_once(addresses)
        except OSError as error:
            log.debug("another port is chosen: %s", error)
    return _bound_once(addresses)


def _bound_once(addresses: Sequence[str]) -> list[socket.socket]:
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        for address in addresses:
            port = sockets[0].getsockname()[1] if sockets else 0
            listener = socket.create_server((address, port), backlog=BACKLOG)
            sockets.append(opened.enter_context(listener))
        opened.pop_all()
        return sockets
