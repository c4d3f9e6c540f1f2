"""The launcher's end of the control connections to its ranks.

It checks where each rank came up, tells the ranks each other's addresses and values, and asks them to stop. Module `link`
describes the messages, and how the ranks agree on a last step.

One thread with an event loop serves all ranks. So a run of 1,024 ranks needs no more threads than a run of two, and a
rank that reads slowly does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from ckptbench.errors import LaunchError
from ckptbench.world.link import FINISHED, Hello, decoded, encoded, shut
from ckptbench.world.seats import Seat, same_host

log = logging.getLogger(__name__)

LOOPBACK = "127."
BACKLOG = 1024
"""Connections that may wait until `serve` accepts them. The kernel may allow fewer; the other ranks then try again."""
PING_SECONDS = 1.0
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
        self._is_asked = False
        """Whether the ranks have been asked to stop."""
        self._last_step: int | None = None
        """None: it is not decided. Otherwise some ranks may have entered it already."""
        self._stopped: dict[int, int] = {}
        self._given: dict[str, dict[int, Any]] = {}
        """The values that ranks have given, by name and rank, until all have."""
        self._lost: list[int] = []
        self._absent: set[int] = set()
        """The lost ranks without which the others go on, until they come up again."""
        self._coming: set[int] = set()
        """Those of them that the launcher has started again. They stay absent until they join."""
        self._have_met = False
        """Whether all ranks have come up."""
        self._have_finished = False
        """Whether all ranks that train have finished: none may join them now."""
        self._heard: dict[int, float] = {}
        """Monotonic time of each rank's last answer, once all have come up."""
        self._parted: set[int] = set()
        self._leaving: dict[_Line, int] = {}
        """The lines of ranks that end, because all come up anew."""
        self._early: list[tuple[_Line, Hello]] = []
        """The lines of ranks that came up anew before the launcher knew that they would."""
        self._comes_anew = False
        """Whether all ranks come up anew, and wait for their answer when they have."""
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._serving: _Serving | None = None
        self.token = secrets.token_hex(16)
        loopback = host.startswith(LOOPBACK)
        self._listener = socket.create_server((host if loopback else "", 0), backlog=BACKLOG)
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def serve(self, *, pinging: bool = False) -> None:
        """Start the thread that serves the ranks. Child processes must be started before.

        With `pinging` every rank is asked for an answer once a second, which `silent` needs.
        """
        _allow_files(len(self._seats) + OTHER_FILES)
        self._serving = _Serving(self, self._listener, pinging=pinging)

    def close(self) -> None:
        """End all connections. Ranks that still run then end themselves."""
        if self._serving is not None:
            self._serving.end()
            self._serving = None
        self._listener.close()

    @property
    def missing(self) -> list[Seat]:
        """The seats whose rank has not come up. Ranks that come up anew count when all have, and the earlier ones are gone."""
        with self._lock:
            if self._comes_anew and self._leaving:
                return list(self._seats)
            return [seat for seat in self._seats if seat.rank not in self._hellos]

    @property
    def _present(self) -> list[int]:
        """The ranks on whose answers others wait."""
        return [seat.rank for seat in self._seats if seat.rank not in self._absent]

    @property
    def coming(self) -> list[int]:
        """The ranks that the launcher has started again and that have not joined the others."""
        with self._lock:
            return sorted(self._coming)

    @property
    def training(self) -> list[int]:
        """The ranks that are neither lost nor coming."""
        with self._lock:
            return [rank for rank in self._present if rank not in self._lost]

    def go_on_without(self, ranks: Iterable[int], *, replaced: bool = False) -> None:
        """The other ranks go on without these, which are lost. They count as lost no more, and may come up again.

        `replaced`: the launcher starts them again, and they have to join.
        """
        with self._lock:
            for rank in ranks:
                self._absent.add(rank)
                self._heard.pop(rank, None)
                if replaced:
                    self._coming.add(rank)
                else:
                    self._coming.discard(rank)
                if rank in self._lost:
                    self._lost.remove(rank)
                line = self._lines.pop(rank, None)
                if line is not None:  # the rank hangs, and what comes of it now is of no use
                    line.caller = line.rank = None
                for given in (self._entered, self._stopped, *self._given.values()):
                    given.pop(rank, None)
        if self._serving is not None:
            self._serving.soon(self._answer_what_is_whole, {})

    def begin_anew(self) -> None:
        """End all ranks: what has started them is about to start them all anew. None of them counts as lost any more.

        The new ones wait for `let_begin` when all have come up. A rank that hangs must be ended otherwise.
        """
        with self._lock:
            self._leaving |= {line: rank for rank, line in self._lines.items()}
            for known in (
                self._hellos, self._gpus, self._lines, self._entered, self._stopped, self._given, self._lost,
                self._absent, self._coming, self._heard, self._parted,
            ):  # fmt: skip
                known.clear()
            self._have_finished = False
            self._last_step = None
            self._comes_anew = True
        if self._serving is not None:
            self._serving.soon(self._dismiss, {"end": True})

    @property
    def leaving(self) -> list[int]:
        """The ranks that have not ended yet since `begin_anew`."""
        with self._lock:
            return list(self._leaving.values())

    @property
    def has_come_anew(self) -> bool:
        """Whether all ranks have come up anew and wait for `let_begin`, and none of the earlier ones is left."""
        return self._comes_anew and not self.missing

    def let_begin(self, launched: str) -> None:
        """Answer the ranks that have come up anew. `launched` is passed on to them: when they were started."""
        if self._serving is not None:
            self._serving.soon(self._answer_all, {"launched": launched})

    @property
    def lost(self) -> list[int]:
        """The ranks whose connection ended without a `bye`, in that order: they have died."""
        with self._lock:
            return list(self._lost)

    def silent(self, patience_s: float) -> list[int]:
        """The connected ranks that have not answered for so long. It takes `serve` with `pinging`."""
        before = time.monotonic() - patience_s
        with self._lock:
            return [rank for rank in self._lines if self._heard.get(rank, math.inf) < before]

    def ping(self) -> None:
        """Ask every rank for an answer, once all have come up. Called in the serving thread."""
        with self._lock:
            if len(self._hellos) == len(self._seats) and not self._comes_anew:
                for rank in self._lines:
                    self._heard.setdefault(rank, time.monotonic())
                self._tell_all({"ping": True})

    @property
    def all_parted(self) -> bool:
        """Whether every rank has said `bye`, because it has nothing more to do."""
        with self._lock:
            return self._parted.issuperset(self._present)

    @property
    def stopped_at(self) -> int | None:
        """Number of steps done when the ranks stopped on request; None until all have stopped."""
        with self._lock:
            everybody = bool(self._stopped) and self._stopped.keys() >= {*self._present}
            return max(self._stopped.values()) if everybody else None

    def raise_if_misplaced(self) -> None:
        """Raises LaunchError if an unexpected rank came up, or a rank came up in the wrong place."""
        if self._problem:
            raise LaunchError(self._problem)

    def ask_to_stop(self) -> None:
        """Ask all ranks to stop after the same step. All of them must have come up before."""
        if self._serving is not None:
            self._serving.soon(self._ask_to_stop, {"stop": True})

    def hear(self, line: _Line, message: dict[str, Any]) -> None:
        """Handle one message of a rank. Called in the serving thread."""
        with self._lock:
            if line in self._leaving:
                return
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
            if self._leaving.pop(line, None) is not None:
                return
            if line.caller is None or line.rank in self._parted:
                return
            self._early = [(early, hello) for early, hello in self._early if early is not line]
            self._lost.append(line.caller)
            if line.rank is not None:
                del self._lines[line.rank]

    def _welcome(self, line: _Line, hello: Hello) -> None:
        if hello.rank in self._hellos.keys() - self._lines.keys() - self._absent:
            self._early.append((line, hello))  # the launcher has not decided yet about the loss
            return
        if objection := self._objection(hello):
            self._problem = self._problem or objection
            line.hang_up()
            return
        line.rank = hello.rank
        comes_again = self._have_met and hello.rank in self._absent
        if not self._have_met:
            self._coming.discard(hello.rank)
        if hello.rank not in self._coming:
            self._absent.discard(hello.rank)
        self._hellos[hello.rank], self._lines[hello.rank] = hello, line
        if hello.device != "cpu":
            self._gpus[hello.node, hello.device] = hello.rank
        if comes_again:
            line.send(encoded({"addresses": self._addresses(), "again": True}))
            if self._is_asked:
                line.send(encoded({"stop": True}))
            if self._last_step is not None:
                line.send(encoded({"last_step": self._last_step}))
        elif len(self._hellos) == len(self._seats) and not self._comes_anew:
            self._have_met = True
            self._tell_all({"addresses": self._addresses()})

    def _objection(self, hello: Hello) -> str | None:
        if not 0 <= hello.rank < len(self._seats):
            return f"rank {hello.rank} came up on {hello.node}, but the run has {len(self._seats)} ranks"
        if hello.rank in self._hellos and hello.rank not in self._absent:
            return f"rank {hello.rank} came up twice, on {self._hellos[hello.rank].node} and {hello.node}"
        meant = self._seats[hello.rank].node
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
        self._heard[rank] = time.monotonic()
        if "entered" in message:
            self._entered[rank] = message["entered"]
            self._decide_last_step()
        elif "stopped" in message:
            self._stopped[rank] = message["stopped"]
            line.send(encoded({"noted": True}))
        elif "join" in message:
            self._join(line, rank)
        elif "gather" in message:
            self._gather(rank, message["gather"], message["value"])

    def _join(self, line: _Line, rank: int) -> None:
        if self._have_finished or self._parted:
            return
        self._coming.discard(rank)
        self._absent.discard(rank)
        line.send(encoded({"joined": True}))

    def _gather(self, rank: int, name: str, value: Any) -> None:
        self._given.setdefault(name, {})[rank] = value
        self._answer_gathered(name)

    def _answer_gathered(self, name: str) -> None:
        given = self._given[name]
        if given.keys() >= {*self._present}:
            del self._given[name]
            self._have_finished |= name == FINISHED
            self._tell_all({"gathered": name, "values": [given[rank] for rank in self._present]})

    def _decide_last_step(self) -> None:
        if self._last_step is not None or not self._entered:
            return
        if self._entered.keys() >= {*self._present}:
            self._last_step = max(self._entered.values())
            self._tell_all({"last_step": self._last_step})

    def _ask_to_stop(self, message: dict[str, Any]) -> None:
        """Called in the serving thread."""
        with self._lock:
            self._is_asked = True
            self._tell_all(message)

    def _answer_what_is_whole(self, _: dict[str, Any]) -> None:
        """Answer what waited only for ranks that are lost. Called in the serving thread."""
        with self._lock:
            self._decide_last_step()
            for name in list(self._given):
                self._answer_gathered(name)
            self._hear_early_ones()

    def _dismiss(self, message: dict[str, Any]) -> None:
        """Tell the ranks that are to end. Called in the serving thread."""
        with self._lock:
            for line in self._leaving:
                line.send(encoded(message))
            self._hear_early_ones()

    def _hear_early_ones(self) -> None:
        early, self._early = self._early, []
        for line, hello in early:
            self._welcome(line, hello)

    def _answer_all(self, message: dict[str, Any]) -> None:
        """Called in the serving thread."""
        with self._lock:
            self._comes_anew = False
            self._tell_all({"addresses": self._addresses(), **message})

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

    def __init__(self, control: ControlServer, listener: socket.socket, *, pinging: bool) -> None:
        self._control = control
        self._listener = listener
        self._pinging = pinging
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
        pings = asyncio.create_task(self._ping()) if self._pinging else None
        await self._ended.wait()
        if pings is not None:
            pings.cancel()
        server.close()
        for line in self._open:
            line.cut()
        await asyncio.sleep(0)  # lets the loop close the connections that were cut

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._control.ping()


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
