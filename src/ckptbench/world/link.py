"""A rank's end of the line to its launcher, and the messages on it; the launcher's end is in `control`.

One TCP connection a rank, one JSON object a line. A rank says who it is, then how it came up, and the launcher, when all
have come up where they were meant to, answers with everybody's `addresses`. A rank says `bye` before it hangs up: one that
does not has died. A rank whose launcher is gone ends.

To stop, the ranks must agree on a step, or one would wait for ever in the averaging of a step that another does not
make. Asking at every step would be timed as training. So the launcher asks once: each rank answers, from a thread of
its own, with the step that it has entered, and enters no other until it hears the answer. The largest of
them is the last step of all: whoever is behind can reach it, and nobody has passed it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from ckptbench.errors import LaunchError

log = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0


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
    def open(cls, address: str, token: str, *, rank: int, node: str) -> Self:
        """Call the launcher, which knows from then on when this rank dies.

        Raises LaunchError where it cannot be reached.
        """
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
        _end_when_unreachable(connection)
        link = cls(connection)
        link._send({"token": token, "rank": rank})
        return link

    def meet(self, *, rank: int, node: str, device: str) -> None:
        """Say how this rank came up, and return when all have. Raises LaunchError where that goes wrong."""
        own = self._connection.getsockname()[0]
        with (
            socket.socket() as reserved
        ):  # until all have reported: two ranks must not find one port
            reserved.bind(("", 0))
            hello = Hello(
                rank=rank,
                node=node,
                device=device,
                address=f"{own}:{reserved.getsockname()[1]}",
                launcher=self._connection.getpeername()[0],
            )
            self._send(asdict(hello))
            answer = decoded(self._lines.readline())
        if "addresses" not in answer:
            raise LaunchError(f"rank {rank}: the launcher hung up before all ranks had come")
        self.addresses = tuple(answer["addresses"])
        threading.Thread(target=self._listen, daemon=True).start()

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

    def hang_up(self) -> None:
        """Without a goodbye, as a rank that dies does anyway; so that the launcher knows who was the first."""
        self._closing = True
        shut(self._connection)

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):  # a launcher that is gone needs no goodbye
            self._send({"bye": True})
        shut(self._connection)

    def _listen(self) -> None:
        try:
            for line in self._lines:
                self._obey(decoded(line))
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
        self._connection.sendall(encoded(message))


def shut(connection: socket.socket) -> None:
    """End a conversation for both sides, whoever has ended it already."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _end_when_unreachable(connection: socket.socket) -> None:
    """Have the kernel close the line when the other host has been silent for two minutes, as one without power is."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> dict[str, Any]:
    """{} for the end of the connection."""
    return dict(json.loads(line)) if line else {}
