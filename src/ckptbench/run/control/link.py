"""A rank's end of the control connection to its launcher, and the messages on it. Module `control` is the other end.

Each rank has one TCP connection, on which every line is a JSON object. A rank first sends its token and number, then a
Hello. When all ranks have come up in the right places, the launcher answers with the `addresses` of all. A rank sends
`bye` before it ends the connection; a rank whose connection ends without `bye` has died. A rank ends itself when its
launcher is gone.

Before they stop, the ranks must agree on a last step. Otherwise one rank would wait for ever for gradients of a step
that another rank does not make. Asking at every step would be timed as training, so the launcher asks only once. Each
rank answers, from a second thread, with the number of the step that it has entered, and enters no further step until
the launcher has decided. The last step is the largest of these numbers: every rank can still reach it, and no rank has
passed it.

A launcher that wants to know about hangs asks every rank to answer once a second: `ping`, `pong`. The second thread
answers, so a rank that computes does too, but not one that is stopped.

Ranks can also exchange small values over the connection, by `gather`. The launcher answers when all have given theirs. It
needs no collectives of the framework, so it can be used before there is one.

Where ranks are lost and the others go on, nobody waits for the lost ones any more. A process that comes in place of one
says hello as the first one did, and is answered at once. If the launcher has started it, nobody waits for it before it says
`join`, which is not answered once the others have finished.

Where what has started the ranks ends all of them after a loss, and starts all anew, the launcher tells those that are left
to end: `end`. It answers the new ones when all have come up and it has chosen the checkpoint to go on from.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from ckptbench.common.errors import LaunchError

log = logging.getLogger(__name__)

CONNECT_SECONDS = 60.0
FINISHED = "finished"
"""The name under which ranks gather that they have finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A rank's report of the node on which it came up, and its GPU."""

    rank: int
    node: str
    """Name of its host: the scheduler's name for it if there is a scheduler."""
    device: str
    """`cpu`, or the one GPU that the rank sees."""
    address: str
    """`host:port` at which the other ranks reach it. The host is that of the interface that leads to the launcher."""
    launcher: str
    """Address at which this rank reaches the launcher."""


class Link:
    """A rank's end. `addresses` holds the `host:port` of every rank, by rank, once `rendezvous` has returned."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._entered = 0
        self._asked = False
        self._last_step: int | None = None
        self._decided = threading.Event()
        self._noted = threading.Event()
        self._joined = threading.Event()
        self._sending = threading.Lock()
        self._gathering: dict[str, Future[list[Any]]] = {}
        self._closing = False
        self.addresses: tuple[str, ...] = ()
        self.launched: str | None = None
        """When this rank was started anew, as the launcher says it. None: it was started by the launcher. Known like `addresses`."""
        self.is_replacement = False
        """Whether the others train already: this rank comes in place of one that was lost. Known when `rendezvous` has returned."""

    @classmethod
    def open(cls, address: str, token: str, *, rank: int, node: str) -> Self:
        """Connect to the launcher at `address`, a `host:port`. From then on it notices when this rank dies.

        Raises LaunchError if the launcher cannot be reached.
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

    def rendezvous(self, *, rank: int, node: str, device: str) -> None:
        """Report where this rank came up. Returns when all ranks have. Raises LaunchError if the launcher refuses."""
        own = self._connection.getsockname()[0]
        # The port is held until all ranks have reported, so that no two ranks choose the same one.
        with socket.socket() as reserved:
            reserved.bind(("", 0))
            hello = Hello(
                rank=rank,
                node=node,
                device=device,
                address=f"{own}:{reserved.getsockname()[1]}",
                launcher=self._connection.getpeername()[0],
            )
            try:
                self._send(asdict(hello))
                answer = decoded(self._lines.readline())
            except OSError:  # the launcher closed it before it had read everything
                answer = {}
        if "addresses" not in answer:
            raise LaunchError(
                f"rank {rank}: the launcher hung up before all ranks had come up; its log says why"
            )
        self.addresses = tuple(answer["addresses"])
        self.launched = answer.get("launched")
        self.is_replacement = "replaces" in answer
        threading.Thread(target=self._listen, daemon=True).start()

    def may_enter(self, step: int) -> bool:
        """Whether to make the run's step `step` (from 1). Called before every step.

        It costs two attribute accesses while nobody has asked to stop. After that it may wait for the other ranks'
        answers.
        """
        # First set _entered, then read _asked. _obey does the reverse, so at least one of them sees the other.
        self._entered = step
        if not self._asked:
            return True
        self._decided.wait()
        return self._last_step is None or step <= self._last_step

    def gather(self, name: str, value: Any) -> list[Any]:
        """Give a value, and return those of all ranks, by rank, once all have given theirs under this name.

        Values are small and can be written as JSON. A name can be used again when its values have come back; ValueError
        before that.
        """
        gathered: Future[list[Any]] = Future()
        if self._gathering.setdefault(name, gathered) is not gathered:
            raise ValueError(f"{name} is being gathered already")
        self._send({"gather": name, "value": value})
        return gathered.result()

    def join(self) -> None:
        """Return when the others wait for this rank, which the launcher has started in place of a lost one.

        It does not return if the others have finished: the launcher then ends this process.
        """
        self._send({"join": True})
        self._joined.wait()

    def finish(self) -> None:
        """Return when all ranks that train have called it. None joins them after that."""
        self.gather(FINISHED, True)

    def tell_stopped(self, steps_done: int) -> None:
        """Report that this rank has stopped, and return when the launcher has confirmed it.

        Without the confirmation this process might end before the launcher has read the message.
        """
        self._send({"stopped": steps_done})
        self._noted.wait(CONNECT_SECONDS)

    def hang_up(self) -> None:
        """End the connection without `bye`, as if this rank had died.

        A failing rank calls it at once, so that the launcher knows which rank failed first.
        """
        self._closing = True
        shut(self._connection)

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):  # the launcher may be gone already
            self._send({"bye": True})
        shut(self._connection)

    def _listen(self) -> None:
        try:
            for line in self._lines:
                self._obey(decoded(line))
        except (OSError, ValueError):
            log.debug("the connection to the launcher broke", exc_info=True)
        if not self._closing:
            log.error("the launcher is gone: this rank ends")
            os._exit(1)  # the main thread may be waiting in a collective for ever

    def _obey(self, message: dict[str, Any]) -> None:
        if "ping" in message:
            self._send({"pong": message["ping"]})
        elif "end" in message:
            log.info("another rank is lost and all are restarted: this one ends")
            os._exit(1)  # the main thread may be waiting in a collective for ever
        elif "stop" in message:
            self._asked = True
            self._send({"entered": self._entered})
        elif "last_step" in message:
            self._last_step = message["last_step"]
            self._decided.set()
        elif "joined" in message:
            self._joined.set()
        elif "noted" in message:
            self._noted.set()
        elif "gathered" in message:
            gathering = self._gathering.pop(message["gathered"], None)
            if (
                gathering is not None
            ):  # else the others have gathered without this rank, which was not there yet
                gathering.set_result(message["values"])

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:  # a long message of one thread must not be cut by that of another
            self._connection.sendall(encoded(message))


def shut(connection: socket.socket) -> None:
    """End a connection in both directions, even if the other side has ended it already."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _end_when_unreachable(connection: socket.socket) -> None:
    """Have the kernel close the connection after two minutes of silence, as when the other host loses power."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> dict[str, Any]:
    """The message of a line; {} for the empty line that marks the end of the connection."""
    return dict(json.loads(line)) if line else {}
