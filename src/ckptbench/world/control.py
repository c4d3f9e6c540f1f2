"""The launcher's end of the control connections to its ranks.

It checks where each rank came up, tells the ranks each other's addresses, and asks them to stop. Module `link`
describes the messages, and how the ranks agree on a last step.

One thread with an event loop serves all ranks. So a run of 1,024 ranks needs no more threads than a run of two, and a
rank that reads slowly does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from ckptbench.errors import LaunchError
from ckptbench.world.link import Hello, decoded, encoded, shut
from ckptbench.world.seats import Seat, same_host

log = logging.getLogger(__name__)

LOOPBACK = "127."
BACKLOG = 1024
"""Connections that may wait until `serve` accepts them. The kernel may allow fewer; the other ranks then try again."""
OTHER_FILES = 256
"""File descriptors that the launcher may need in addition to one for each rank."""


class ControlServer:
    """The launcher's end. It listens from the start; `serve` begins to answer; `close` ends all connections."""

    def __init__(self, seats: Sequence[Seat], *, host: str) -> None:
        """Ranks connect to `host`, a name or address of this host that all of them can resolve."""
        self._seats = seats
        self._hellos: dict[int, Hello] = {}
        self._gpus: dict[tuple[str, str], int] = {}
        """The rank that has the GPU, by node and device."""
        self._node_addresses: dict[str, list[str]] = {}
        self._lines: dict[int, _Line] = {}
        self._entered: dict[int, int] = {}
        self._stopped: dict[int, int] = {}
        self._lost: list[int] = []
        self._parted: set[int] = set()
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._serving: _Serving | None = None
        self.token = secrets.token_hex(16)
        loopback = host.startswith(LOOPBACK)
        self._listener = socket.create_server((host if loopback else "", 0), backlog=BACKLOG)
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        """Start the thread that serves the ranks. Child processes must be started before."""
        _allow_files(len(self._seats) + OTHER_FILES)
        self._serving = _Serving(self, self._listener)

    def close(self) -> None:
        """End all connections. Ranks that still run then end themselves."""
        if self._serving is not None:
            self._serving.end()
            self._serving = None
        self._listener.close()

    @property
    def missing(self) -> list[Seat]:
        """The seats whose rank has not come up."""
        with self._lock:
            return [seat for seat in self._seats if seat.rank not in self._hellos]

    @property
    def lost(self) -> list[int]:
        """The ranks whose connection ended without a `bye`, in that order: they have died."""
        with self._lock:
            return list(self._lost)

    @property
    def all_parted(self) -> bool:
        """Whether every rank has said `bye`, because it has nothing more to do."""
        with self._lock:
            return len(self._parted) == len(self._seats)

    @property
    def stopped_at(self) -> int | None:
        """Number of steps done when the ranks stopped on request; None until all have stopped."""
        with self._lock:
            everybody = len(self._stopped) == len(self._seats)
            return max(self._stopped.values()) if everybody else None

    def raise_if_misplaced(self) -> None:
        """Raises LaunchError if an unexpected rank came up, or a rank came up in the wrong place."""
        if self._problem:
            raise LaunchError(self._problem)

    def ask_to_stop(self) -> None:
        """Ask all ranks to stop after the same step. All of them must have come up before."""
        if self._serving is not None:
            self._serving.soon(self._tell_all, {"stop": True})

    def hear(self, line: _Line, message: dict[str, Any]) -> None:
        """Handle one message of a rank. Called in the serving thread."""
        with self._lock:
            if line.caller is None:
                if message.get("token") != self.token:
                    line.hang_up()  # not a rank of this run
                else:
                    line.caller = message["rank"]
            elif line.rank is None:
                self._welcome(line, Hello(**message))
            elif "bye" in message:
                self._parted.add(line.rank)
                del self._lines[line.rank]
                line.hang_up()
            else:
                self._obey(line, line.rank, message)

    def hung_up(self, line: _Line) -> None:
        """Note that a connection has ended. Called in the serving thread."""
        with self._lock:
            if line.caller is None or line.rank in self._parted:
                return
            self._lost.append(line.caller)
            if line.rank is not None:
                del self._lines[line.rank]

    def _welcome(self, line: _Line, hello: Hello) -> None:
        if objection := self._objection(hello):
            self._problem = self._problem or objection
            line.hang_up()
            return
        line.rank = hello.rank
        self._hellos[hello.rank], self._lines[hello.rank] = hello, line
        if hello.device != "cpu":
            self._gpus[hello.node, hello.device] = hello.rank
        if len(self._hellos) == len(self._seats):
            self._tell_all({"addresses": self._addresses()})

    def _objection(self, hello: Hello) -> str | None:
        if not 0 <= hello.rank < len(self._seats):
            return f"rank {hello.rank} came up on {hello.node}, but the run has {len(self._seats)} ranks"
        if hello.rank in self._hellos:
            return f"rank {hello.rank} came up twice, on {self._hellos[hello.rank].node} and {hello.node}"
        meant = self._seats[hello.rank].node
        if not same_host(hello.node, meant) and not self._is_address_of(hello.address, meant):
            return f"rank {hello.rank} came up on {hello.node}, it was meant for {meant}"
        if (other := self._gpus.get((hello.node, hello.device))) is not None:
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

    def _addresses(self) -> list[str]:
        """`host:port` of every rank, by rank, as ranks on other hosts can reach it.

        A rank on the launcher's host may report a loopback address. It is replaced by the address at which ranks on
        other hosts reach the launcher.
        """
        hellos = [self._hellos[seat.rank] for seat in self._seats]
        outside = [h.launcher for h in hellos if not h.launcher.startswith(LOOPBACK)]
        return [
            f"{outside[0]}:{hello.address.rpartition(':')[2]}"
            if outside and hello.address.startswith(LOOPBACK)
            else hello.address
            for hello in hellos
        ]

    def _obey(self, line: _Line, rank: int, message: dict[str, Any]) -> None:
        if "entered" in message:
            self._entered[rank] = message["entered"]
            if len(self._entered) == len(self._seats):
                self._tell_all({"last_step": max(self._entered.values())})
        elif "stopped" in message:
            self._stopped[rank] = message["stopped"]
            line.send(encoded({"noted": True}))

    def _tell_all(self, message: dict[str, Any]) -> None:
        """Send a message to all connected ranks. Called in the serving thread."""
        said = encoded(message)
        for line in self._lines.values():
            line.send(said)


class _Line(asyncio.Protocol):
    """One connection to a rank. All its methods are called in the serving thread."""

    def __init__(self, control: ControlServer, others: set[_Line]) -> None:
        """`others` is the set of open connections. Each adds itself when it opens and removes itself when it ends."""
        self._control = control
        self._others = others
        self._unread = b""
        self.caller: int | None = None
        """Number of the rank at the other end, known once it has sent the right token."""
        self.rank: int | None = None
        """The same number, set once the launcher has accepted the rank in its place."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._others.add(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            if self._transport.is_closing():  # ignore what comes after `bye`
                break
            self._control.hear(self, decoded(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        self._control.hung_up(self)

    def send(self, said: bytes) -> None:
        """Returns at once. Bytes that the rank does not read now are buffered."""
        self._transport.write(said)

    def hang_up(self) -> None:
        self._transport.close()

    def cut(self) -> None:
        """End the connection at once, without waiting until the rank has read everything."""
        shut(self._transport.get_extra_info("socket"))
        self._transport.abort()


class _Serving:
    """The serving thread and its event loop."""

    def __init__(self, control: ControlServer, listener: socket.socket) -> None:
        self._control = control
        self._listener = listener
        self._open: set[_Line] = set()
        self._ended = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._loop.set_exception_handler(_note)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def soon(self, call: Callable[[dict[str, Any]], None], message: dict[str, Any]) -> None:
        """Have the serving thread call `call(message)` soon."""
        self._loop.call_soon_threadsafe(call, message)

    def end(self) -> None:
        """Accept no more connections, end the open ones, and return when the thread has ended."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._answer())

    async def _answer(self) -> None:
        server = await self._loop.create_server(
            lambda: _Line(self._control, self._open), sock=self._listener, backlog=BACKLOG
        )
        await self._ended.wait()
        server.close()
        for line in self._open:
            line.cut()
        await asyncio.sleep(0)  # lets the loop close the connections that were cut


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug(
        "a control connection broke: %s", context["message"], exc_info=context.get("exception")
    )


def _allow_files(number: int) -> None:
    """Raise this process's limit of open files to `number`, as far as allowed. On many hosts it starts at 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
