"""The launcher's end of the line to its ranks: who came up where, how they reach each other, when to stop.

What is said on it, and how the ranks agree on a last step, is told in `link`.
"""

from __future__ import annotations

import logging
import secrets
import socket
import socketserver
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, cast

from ckptbench.allocation import Seat, same_host
from ckptbench.errors import LaunchError
from ckptbench.link import Hello, decoded, encoded, shut

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
LOOPBACK = "127."


class ControlServer:
    """The launcher's end. It listens from the start; `serve` begins to answer, `close` hangs up."""

    def __init__(self, seats: Sequence[Seat], *, host: str) -> None:
        """Ranks connect to `host`, a name or address of this host that all of them can resolve."""
        self._seats = seats
        self._hellos: dict[int, Hello] = {}
        self._lines: dict[int, socket.socket] = {}
        self._entered: dict[int, int] = {}
        self._stopped: dict[int, int] = {}
        self._lost: list[int] = []
        self._parted: set[int] = set()
        self._lock = threading.Lock()
        self._asked = False
        self._problem: str | None = None
        self._serving: threading.Thread | None = None
        self.token = secrets.token_hex(16)
        loopback = host.startswith(LOOPBACK)
        self._server = _Server((host if loopback else "", 0), self)
        self.address = f"{host}:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Answer, from threads of its own: start child processes before."""
        self._serving = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True
        )
        self._serving.start()

    def close(self) -> None:
        """The ranks that are still there end themselves."""
        if self._serving is not None:
            self._server.shutdown()
            self._serving = None
        self._server.server_close()
        with self._lock:
            for connection in self._lines.values():
                shut(connection)

    @property
    def missing(self) -> list[Seat]:
        """The seats whose rank has not come up."""
        with self._lock:
            return [seat for seat in self._seats if seat.rank not in self._hellos]

    @property
    def lost(self) -> list[int]:
        """The ranks that hung up without a goodbye, the first first: they have died."""
        with self._lock:
            return list(self._lost)

    @property
    def all_parted(self) -> bool:
        """Whether every rank has said goodbye: it has nothing more to do."""
        with self._lock:
            return len(self._parted) == len(self._seats)

    @property
    def stopped_at(self) -> int | None:
        """The steps done when all ranks had stopped as they were asked to."""
        with self._lock:
            everybody = len(self._stopped) == len(self._seats)
            return max(self._stopped.values()) if everybody else None

    def raise_if_misplaced(self) -> None:
        """Raises LaunchError where a rank came up that was not meant to, or elsewhere."""
        if self._problem:
            raise LaunchError(self._problem)

    def ask_to_stop(self) -> None:
        """Have all ranks, which have come up, stop after one and the same step."""
        with self._lock:
            self._asked = True
            for rank in self._lines:
                self._send(rank, {"stop": True})

    def talk(self, connection: socket.socket, lines: IO[bytes]) -> None:
        """Talk to one rank until it hangs up; called in a thread of its own."""
        caller = decoded(lines.readline())
        if caller.get("token") != self.token:
            return  # a stranger, or a rank of a run that has ended
        try:
            parted = self._converse(connection, lines)
        except (OSError, ValueError):
            parted = False
        with self._lock:
            if self._lines.get(caller["rank"]) is connection:
                del self._lines[caller["rank"]]
            if parted:
                self._parted.add(caller["rank"])
            else:
                self._lost.append(caller["rank"])

    def _converse(self, connection: socket.socket, lines: IO[bytes]) -> bool:
        """Returns whether the rank said goodbye."""
        first = decoded(lines.readline())
        if not first:
            return False
        hello = Hello(**first)
        with self._lock:
            if objection := self._objection(hello):
                self._problem = self._problem or objection
                return False
            self._seat(hello, connection)
        for message in map(decoded, lines):
            if "bye" in message:
                return True
            with self._lock:
                self._hear(hello.rank, message)
        return False

    def _seat(self, hello: Hello, connection: socket.socket) -> None:
        self._hellos[hello.rank], self._lines[hello.rank] = hello, connection
        if len(self._hellos) == len(self._seats):
            addresses = self._addresses()
            for rank in self._lines:
                self._send(rank, {"addresses": addresses})

    def _objection(self, hello: Hello) -> str | None:
        if not 0 <= hello.rank < len(self._seats):
            return f"rank {hello.rank} came up on {hello.node}, but the run has {len(self._seats)} ranks"
        if hello.rank in self._hellos:
            return f"rank {hello.rank} came up twice, on {self._hellos[hello.rank].node} and {hello.node}"
        meant = self._seats[hello.rank].node
        if not same_host(hello.node, meant) and not _is_address_of(hello.address, meant):
            return f"rank {hello.rank} came up on {hello.node}, it was meant for {meant}"
        for other in self._hellos.values():
            if hello.device != "cpu" and (other.node, other.device) == (hello.node, hello.device):
                return (
                    f"ranks {other.rank} and {hello.rank} share GPU {hello.device} of {hello.node}"
                )
        return None

    def _addresses(self) -> list[str]:
        """By rank. Ranks beside the launcher may know it by loopback: others need what they themselves call it."""
        hellos = [self._hellos[seat.rank] for seat in self._seats]
        outside = [h.launcher for h in hellos if not h.launcher.startswith(LOOPBACK)]
        return [
            f"{outside[0]}:{hello.address.rpartition(':')[2]}"
            if outside and hello.address.startswith(LOOPBACK)
            else hello.address
            for hello in hellos
        ]

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        if "entered" in message:
            self._entered[rank] = message["entered"]
            if len(self._entered) == len(self._seats):
                last = max(self._entered.values())
                for each in self._lines:
                    self._send(each, {"last_step": last})
        elif "stopped" in message:
            self._stopped[rank] = message["stopped"]
            self._send(rank, {"noted": True})

    def _send(self, rank: int, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it has just died: whoever watches its process says so
            self._lines[rank].sendall(encoded(message))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024
    block_on_close = False

    def __init__(self, address: tuple[str, int], control: ControlServer) -> None:
        self.control = control
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a control connection from %s broke", client_address, exc_info=True)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.server.control.talk(self.request, cast(IO[bytes], self.rfile))


def _is_address_of(address: str, node: str) -> bool:
    """Whether the node's name, which may be that of another of its interfaces, leads to this `host:port`."""
    with suppress(OSError):
        return address.rpartition(":")[0] in socket.gethostbyname_ex(node)[2]
    return False
