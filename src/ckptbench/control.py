"""The line between the launcher and its ranks: who came up where, how they reach each other, when to stop.

One TCP connection a rank, one JSON object a line. A rank says `hello`, and the launcher, when all have come up where
they were meant to, answers with everybody's `addresses`. A rank whose launcher is gone ends.

To stop, the ranks must agree on a step, or one would wait for ever in the averaging of a step that another does not
make. Asking at every step would be timed as training. So the launcher asks once: each rank answers, from a thread of
its own, with the step that it has entered, and enters no other until it hears the answer. The largest of
them is the last step of all: whoever is behind can reach it, and nobody has passed it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import socketserver
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any, Self, cast

from ckptbench.allocation import Seat, same_host
from ckptbench.errors import LaunchError

log = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0
POLL_SECONDS = 0.05
LOOPBACK = "127."


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """How a rank came up."""

    rank: int
    node: str
    """Its host, as the scheduler calls it where there is one."""
    device: str
    """`cpu`, or the GPU that it sees."""
    address: str
    """`host:port` where the other ranks reach it: by the interface that reaches the launcher."""
    launcher: str
    """The launcher's address as this rank sees it."""


class ControlServer:
    """The launcher's end. It listens from the start; `serve` begins to answer, `close` hangs up."""

    def __init__(self, seats: Sequence[Seat], *, host: str) -> None:
        """Ranks connect to `host`, a name or address of this host that all of them can resolve."""
        self._seats = seats
        self._hellos: dict[int, Hello] = {}
        self._lines: dict[int, socket.socket] = {}
        self._entered: dict[int, int] = {}
        self._stopped: dict[int, int] = {}
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
                _shut(connection)

    @property
    def missing(self) -> list[Seat]:
        """The seats whose rank has not come up."""
        with self._lock:
            return [seat for seat in self._seats if seat.rank not in self._hellos]

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
        first = _parsed(lines.readline())
        if first.pop("token", None) != self.token:
            return  # a stranger, or a rank of a run that has ended
        hello = Hello(**first)
        with self._lock:
            if objection := self._objection(hello):
                self._problem = self._problem or objection
                return
            self._seat(hello, connection)
        for line in lines:
            with self._lock:
                self._hear(hello.rank, _parsed(line))
        with self._lock:
            self._lines.pop(hello.rank, None)

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
        if not same_host(hello.node, meant):
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
            self._lines[rank].sendall(_line(message))


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


class Link:
    """A rank's end. `addresses` are those of all ranks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._entered = 0
        self._asked = False
        self._last_step: int | None = None
        self._decided = threading.Event()
        self._noted = threading.Event()
        self._closing = False
        self.addresses: tuple[str, ...] = ()

    @classmethod
    def open(cls, address: str, token: str, *, rank: int, node: str, device: str) -> Self:
        """Say hello, and return when all ranks have. Raises LaunchError where the launcher cannot be reached."""
        host, _, port = address.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), CONNECT_SECONDS)
        except OSError as error:
            raise LaunchError(
                f"rank {rank} on {node} cannot reach its launcher at {address} ({error}): compute nodes must "
                "reach each other; where only some interface does, export CKPTBENCH_LAUNCHER_HOST, the "
                "first node's address on it"
            ) from error
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(connection)
        own = connection.getsockname()[0]
        hello = Hello(
            rank=rank,
            node=node,
            device=device,
            address=f"{own}:{_free_port()}",
            launcher=connection.getpeername()[0],
        )
        link._send({"token": token, **asdict(hello)})
        answer = _parsed(link._lines.readline())
        if "addresses" not in answer:
            raise LaunchError(f"rank {rank}: the launcher hung up before all ranks had come")
        link.addresses = tuple(answer["addresses"])
        threading.Thread(target=link._listen, daemon=True).start()
        return link

    def may_enter(self, step: int) -> bool:
        """Whether to make the step that is number `step` (from 1) of the run; called before each of them.

        Costs two attribute accesses until somebody asks to stop; then it may wait for the other ranks' answers.
        """
        self._entered = (
            step  # before the look at _asked: see _listen, which does it the other way round
        )
        if not self._asked:
            return True
        self._decided.wait()
        return self._last_step is None or step <= self._last_step

    def tell_stopped(self, steps_done: int) -> None:
        """Returns when the launcher knows, for what it has not read when this process ends it may not look for."""
        self._send({"stopped": steps_done})
        self._noted.wait(CONNECT_SECONDS)

    def close(self) -> None:
        self._closing = True
        _shut(self._connection)

    def _listen(self) -> None:
        try:
            for line in self._lines:
                self._obey(_parsed(line))
        except (OSError, ValueError):
            log.debug("the line to the launcher broke", exc_info=True)
        if not self._closing:
            log.error("the launcher is gone: this rank ends")
            os._exit(1)  # the main thread may wait in a collective for ever

    def _obey(self, message: dict[str, Any]) -> None:
        if "stop" in message:
            self._asked = True
            self._send({"entered": self._entered})
        elif "last_step" in message:
            self._last_step = message["last_step"]
            self._decided.set()
        elif "noted" in message:
            self._noted.set()

    def _send(self, message: dict[str, Any]) -> None:
        self._connection.sendall(_line(message))


def _shut(connection: socket.socket) -> None:
    """End a conversation for both sides, whoever has ended it already."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _free_port() -> int:
    """A port of this host that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    """{} for the end of the connection."""
    return dict(json.loads(line)) if line else {}
