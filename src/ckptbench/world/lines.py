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
from collections.abc import Callable
from typing import Any, Protocol, cast

from ckptbench.world.link import decoded, shut

log = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that may wait until they are accepted. The kernel may allow fewer; the other ranks then try again."""
PING_SECONDS = 1.0
OTHER_FILES = 256
"""File descriptors that the launcher may need in addition to one for each rank."""


class Hearer(Protocol):
    """What the lines lead to. All its methods are called in the serving thread."""

    def hear(self, line: Line, message: dict[str, Any]) -> None:
        """Handle one message of a rank."""

    def hung_up(self, line: Line) -> None:
        """Note that a connection has ended."""

    def ping(self) -> None:
        """Ask every rank for an answer. Called once a second, if at all."""


class Line(asyncio.Protocol):
    """One connection to a rank. All its methods are called in the serving thread."""

    def __init__(self, hearer: Hearer, others: set[Line]) -> None:
        """`others` is the set of open connections. Each adds itself when it opens and removes itself when it ends."""
        self._hearer = hearer
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
            self._hearer.hear(self, decoded(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
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


class Serving:
    """The serving thread and its event loop. Child processes must be started before."""

    def __init__(self, hearer: Hearer, listener: socket.socket, *, pinging: bool) -> None:
        """Accept the connections to `listener`. With `pinging` the hearer's `ping` is called once a second."""
        self._hearer = hearer
        self._listener = listener
        self._pinging = pinging
        self._open: set[Line] = set()
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
            lambda: Line(self._hearer, self._open), sock=self._listener, backlog=BACKLOG
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
