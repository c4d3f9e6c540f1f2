"""The connections that ranks open to their launcher, and the thread that serves them.

One thread with an event loop serves all ranks. So a run of 1,024 ranks needs no more threads than a run of two, and a
rank that reads slowly does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from ckptbench.world.link import decoded, shut

log = logging.getLogger(__name__)

PING_SECONDS = 1.0
TOKEN_SECONDS = 30.0
"""How long a connection may take to send the token. A rank sends it at once."""
FIRST_LINE_BYTES = 1024
"""The longest line with a token. Of a rank it has less than 100 bytes."""
LINE_BYTES = 1 << 24
"""The longest line of a rank. The values that ranks gather are small."""
READ_BYTES = 1 << 16
STRANGERS = 64
"""How many connections without a token there may be in addition to one for each rank."""
REFUSED_SECONDS = 0.005
"""How long to accept none after one was refused: strangers that come again and again cost no more than a few per cent of a core."""
RETRY_SECONDS = 0.1
"""How long to accept none after one could not be accepted."""
OTHER_FILES = 256 + STRANGERS
"""File descriptors that the launcher may need in addition to one for each rank."""


class Hearer(Protocol):
    """What the lines lead to. All its methods are called in the serving thread."""

    def hear(self, line: Line, message: dict[str, Any]) -> None:
        """Handle one message of a rank."""

    def hung_up(self, line: Line) -> None:
        """Note that a connection has ended."""

    def ping(self) -> None:
        """Ask every rank for an answer. Called once a second, if at all."""


class Line(asyncio.BufferedProtocol):
    """One connection to a rank, or to a stranger until its first line. All its methods are called in the serving thread."""

    def __init__(self, hearer: Hearer, lines: _Lines) -> None:
        self._hearer = hearer
        self._lines = lines
        self._unread = bytearray()
        self.caller: int | None = None
        """Number of the rank at the other end, known once it has sent the right token."""
        self.rank: int | None = None
        """The same number, set once the launcher has accepted the rank in its place."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lines.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are put: of a stranger no more than the rest of a first line."""
        return self._lines.buffer[: self._most_bytes - len(self._unread)]

    def buffer_updated(self, nbytes: int) -> None:
        searched = len(self._unread)
        self._unread += self._lines.buffer[:nbytes]
        while not self._transport.is_closing():  # ignore what comes after `bye`
            end = self._unread.find(b"\n", searched)
            if end < 0:
                if len(self._unread) >= self._most_bytes:
                    self._refuse_long_line()
                return
            line = bytes(self._unread[:end])
            del self._unread[: end + 1]
            searched = 0
            self._take(line)

    @property
    def _most_bytes(self) -> int:
        return FIRST_LINE_BYTES if self._lines.is_stranger(self) else LINE_BYTES

    def _take(self, line: bytes) -> None:
        if not self._lines.is_stranger(self):
            self._hearer.hear(self, decoded(line))
            return
        try:
            self._hearer.hear(self, decoded(line))
        except (ValueError, TypeError, LookupError, RecursionError):
            self.caller = None
        if self.caller is None:
            self._lines.refuse(self, "does not know the token of this run")
        else:
            self._lines.admit(self)

    def _refuse_long_line(self) -> None:
        most = self._most_bytes
        if self._lines.is_stranger(self):
            self._lines.refuse(self, f"has sent {most} bytes without the token of this run")
        else:
            log.error(
                "rank %s has sent a line of more than %d bytes: it counts as lost",
                self.caller,
                most,
            )
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.clear()
        self._lines.remove(self)
        self._hearer.hung_up(self)

    def send(self, said: bytes) -> None:
        """Returns at once. Bytes that the rank does not read now are buffered."""
        self._transport.write(said)

    def hang_up(self) -> None:
        self._transport.close()

    def cut(self) -> None:
        """End the connection at once, without waiting until the rank has read everything."""
        shut(self._transport.get_extra_info("socket"))
        self._transport.abort()

    @property
    def peer(self) -> str:
        """The address at the other end."""
        return str((self._transport.get_extra_info("peername") or ("?",))[0])


class _Lines:
    """The open connections. Of those that have not sent the token, each has little time, and there are not many."""

    def __init__(self, most_strangers: int) -> None:
        self.open: set[Line] = set()
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Where what comes over any of them is put at first."""
        self.refused = 0
        """Number of connections that were ended because they did not send the token."""
        self._most_strangers = most_strangers
        self._strangers: dict[Line, asyncio.TimerHandle] = {}
        """In the order in which they came, and what ends them when their time is over."""

    def add(self, line: Line) -> None:
        self.open.add(line)
        self._strangers[line] = asyncio.get_running_loop().call_later(
            TOKEN_SECONDS, self.refuse, line, f"has not sent the token of this run in {TOKEN_SECONDS:g} s"
        )  # fmt: skip
        if len(self._strangers) > self._most_strangers:
            # The oldest: a rank sends its token at once.
            oldest = next(iter(self._strangers))
            self.refuse(oldest, "is one of too many that have not sent the token of this run")

    def is_stranger(self, line: Line) -> bool:
        """Whether it has not sent the token yet."""
        return line in self._strangers

    def admit(self, line: Line) -> None:
        self._strangers.pop(line).cancel()

    def refuse(self, line: Line, why: str) -> None:
        self.admit(line)
        self.refused += 1
        if self.refused == 1:
            log.warning("a connection from %s %s: it is ended, as all such are", line.peer, why)
        line.cut()

    def remove(self, line: Line) -> None:
        self.open.discard(line)
        if line in self._strangers:
            self.admit(line)


class Serving:
    """The serving thread and its event loop. Child processes must be started before."""

    def __init__(
        self, hearer: Hearer, listeners: Sequence[socket.socket], *, ranks: int, pinging: bool
    ) -> None:
        """Accept connections of this number of ranks. With `pinging` the hearer's `ping` is called once a second."""
        self._hearer = hearer
        self._listeners = listeners
        self._pinging = pinging
        self._lines = _Lines(ranks + STRANGERS)
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
        tasks = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]
        if self._pinging:
            tasks.append(asyncio.create_task(self._ping()))
        await self._ended.wait()
        for task in tasks:
            task.cancel()
        for line in self._lines.open:
            line.cut()
        await asyncio.sleep(0)  # lets the loop close the connections that were cut

    async def _accept(self, listener: socket.socket) -> None:
        """Accept one connection after the other, so that the ranks' messages are read in between."""
        listener.setblocking(False)
        while True:
            refused = self._lines.refused
            try:
                connection, _ = await self._loop.sock_accept(listener)
                await self._loop.connect_accepted_socket(
                    lambda: Line(self._hearer, self._lines), connection
                )
            except OSError as error:  # as when too many files are open
                log.debug("a connection could not be accepted: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            if self._lines.refused > refused:
                await asyncio.sleep(REFUSED_SECONDS)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._hearer.ping()


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug(
        "a control connection broke: %s", context["message"], exc_info=context.get("exception")
    )


def allow_lines(number: int) -> None:
    """Raise this process's limit of open files, as far as allowed, so that it can hold this number of lines.

    On many hosts the limit starts at 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = number + OTHER_FILES
    wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
