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
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from ckptbench.run.control.link import decoded, shut
from ckptbench.run.control.listening import BACKLOG

log = logging.getLogger(__name__)

PING_SECONDS = 1.0
TOKEN_SECONDS = 30.0
"""How long a connection may take to send the token. A rank sends it at once."""
FIRST_LINE_BYTES = 1024
"""The longest line with a token. Of a rank it has less than 100 bytes."""
LINE_BYTES = 1 << 24
"""The longest line of a rank. The values that ranks gather are small."""
READ_BYTES = 1 << 14
STRANGERS = 64
"""How many connections without a token there may be in addition to one for each rank."""
OTHER_FILES = 256 + STRANGERS
"""File descriptors that the launcher may need in addition to one for each rank."""


class MessageHandler(Protocol):
    """What the connections lead to. All its methods are called in the serving thread."""

    def handle(self, connection: Connection, message: dict[str, Any]) -> None:
        """Handle one message of a rank. The first one has its token: if it is right, `connection.caller` is set."""

    def hung_up(self, connection: Connection) -> None:
        """Note that a connection has ended."""

    def ping(self) -> None:
        """Ask every rank for an answer. Called once a second, if at all."""


class Connection:
    """One connection to a rank, or to a stranger until it has sent the token. It is made in the serving thread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self.caller: int | None = None
        """Number of the rank at the other end, known once it has sent the right token."""
        self.rank: int | None = None
        """The same number, set once the launcher has accepted the rank."""

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages until either end hangs up. Raises ValueError for a line that is none, or that is too long."""
        unread = bytearray()
        while chunk := await self._reader.read(READ_BYTES):
            unread += chunk
            while (end := unread.find(b"\n")) >= 0:
                line = bytes(unread[:end])
                del unread[: end + 1]
                yield decoded(line)
            most = FIRST_LINE_BYTES if self.caller is None else LINE_BYTES
            if len(unread) >= most:
                raise ValueError(f"a line of more than {most} bytes")

    def send(self, said: bytes) -> None:
        """Returns at once, in any thread. Bytes that the rank does not read now are buffered."""
        self._loop.call_soon_threadsafe(self._writer.write, said)

    def hang_up(self) -> None:
        """End the connection when the rank has read everything. Any thread may call it."""
        self._loop.call_soon_threadsafe(self._writer.close)

    def cut(self) -> None:
        """End the connection at once, without waiting until the rank has read everything."""
        shut(self._writer.get_extra_info("socket"))
        self._writer.transport.abort()

    @property
    def who(self) -> str:
        """The rank at the other end, or the address of a stranger."""
        peer = self._writer.get_extra_info("peername") or ("?",)
        return f"a stranger at {peer[0]}" if self.caller is None else f"rank {self.caller}"


class Serving:
    """The serving thread and its event loop. Child processes must be started before."""

    def __init__(
        self,
        handler: MessageHandler,
        listeners: Sequence[socket.socket],
        *,
        ranks: int,
        pinging: bool,
    ) -> None:
        """Accept connections of this number of ranks. With `pinging` the handler's `ping` is called once a second."""
        self._handler = handler
        self._listeners = listeners
        self._pinging = pinging
        self._most_strangers = ranks + STRANGERS
        self._open: dict[Connection, None] = {}
        """In the order in which they came."""
        self._has_refused = False
        self._ended = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._loop.set_exception_handler(_note)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Accept no more connections, end the open ones, and return when the thread has ended."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._answer())

    async def _answer(self) -> None:
        for listener in self._listeners:
            await asyncio.start_server(
                self._serve, sock=listener, limit=READ_BYTES, backlog=BACKLOG
            )
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(PING_SECONDS if self._pinging else None):
                    await self._ended.wait()
            except TimeoutError:
                self._handler.ping()
        for connection in self._open:
            connection.cut()
        await asyncio.sleep(0)  # lets the loop close the connections that were cut

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self._open[connection] = None
        strangers = [each for each in self._open if each.caller is None]
        # The oldest: a rank sends its token at once. Of many that come together some have been cut before, and are not gone yet.
        for stranger in strangers[: max(0, len(strangers) - self._most_strangers)]:
            stranger.cut()
        late = self._loop.call_later(TOKEN_SECONDS, connection.cut)
        is_stranger = True
        try:
            async for message in connection.messages():
                self._handler.handle(connection, message)
                if connection.caller is None:
                    break
                late.cancel()
                is_stranger = False
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            if connection.caller is not None:
                log.error("%s counts as lost: %s", connection.who, error)
        except OSError as error:
            log.debug("the connection of %s broke: %s", connection.who, error)
        finally:
            late.cancel()
            del self._open[connection]
            if is_stranger:
                self._note_stranger(connection)
            self._handler.hung_up(connection)
            connection.cut()

    def _note_stranger(self, connection: Connection) -> None:
        if not self._has_refused:
            self._has_refused = True
            log.warning(
                "%s does not send the token of this run: ended, as all such are", connection.who
            )


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.debug(
        "a control connection broke: %s", context["message"], exc_info=context.get("exception")
    )


def allow_connections(number: int) -> None:
    """Raise this process's limit of open files, as far as allowed, so that it can hold this number of connections.

    On many hosts the limit starts at 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = number + OTHER_FILES
    wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
