"""The launcher's end of the control connections to its ranks: it knows which of them take part, are lost or come again.

It answers each message of a rank. Module `link` describes the messages, `connections` carries them, and `rank_addresses` checks where
each rank came up. What all ranks agree on is answered when everybody has spoken who is present.
"""

from __future__ import annotations

import hmac
import math
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckptbench.common.errors import LaunchError
from ckptbench.run.control.connections import Connection, Serving, allow_connections
from ckptbench.run.control.link import FINISHED, Hello, encoded
from ckptbench.run.control.listening import listen
from ckptbench.run.control.rank_addresses import addresses_of_ranks, objection
from ckptbench.run.control.ranks import RankAssignment

Message = dict[str, Any]


@dataclass(slots=True)
class RankState:
    """What the launcher knows of one rank."""

    rank: int
    connection: Connection | None = None
    """None: it is not connected, or not accepted yet."""
    hello: Hello | None = None
    """Its last report. None: it has not come up."""
    is_absent: bool = False
    """It is lost and the others go on without it, until it comes up again."""
    is_coming: bool = False
    """The launcher has started it again. It stays absent until it joins."""
    has_parted: bool = False
    heard: float = math.inf
    """Monotonic time of its last answer, or of the first ping."""
    entered: int | None = None
    """The step that it has entered after it was asked to stop. It enters no further one by itself."""
    stopped: int | None = None
    """Number of steps that it had done when it stopped."""
    given: dict[str, Any] = field(default_factory=dict)
    """The values that it has given, by name, and that others have not given yet."""


class ControlServer:
    """The launcher's end. It listens from the start; `serve` begins to answer; `close` ends all connections."""

    def __init__(self, assignments: Sequence[RankAssignment], *, host: str) -> None:
        """Ranks connect to `host`, a name or address of this host that all of them can resolve."""
        self._assignments = assignments
        self._begin()
        self._have_met = False
        """Whether all ranks have come up."""
        self._is_asked = False
        """Whether the ranks have been asked to stop."""
        self._leaving: dict[Connection, int] = {}
        """The connections of ranks that end, because all come up anew."""
        self._early: list[tuple[Connection, Hello]] = []
        """The connections of ranks that came up anew before the launcher knew that they would."""
        self._comes_anew = False
        """Whether all ranks come up anew, and wait for their answer when they have."""
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._serving: Serving | None = None
        self.token = secrets.token_hex(16)
        self._listeners = listen(host, [assignment.node for assignment in assignments])
        self.address = f"{host}:{self._listeners[0].getsockname()[1]}"

    def _begin(self) -> None:
        """Nothing is known of any rank."""
        self._ranks = [RankState(each.rank) for each in self._assignments]
        self._lost: list[int] = []
        self._last_step: int | None = None
        """Of all ranks before a stop. None: it is not decided. Otherwise some ranks may have entered it already."""
        self._have_finished = False
        """Whether all ranks that train have finished: none may join them now."""

    def serve(self, *, pinging: bool = False) -> None:
        """Start the thread that serves the ranks. Child processes must be started before.

        With `pinging` every rank is asked for an answer once a second, which `silent` needs.
        """
        allow_connections(len(self._assignments))
        self._serving = Serving(
            self, self._listeners, ranks=len(self._assignments), pinging=pinging
        )

    def close(self) -> None:
        """End all connections. Ranks that still run then end themselves."""
        if self._serving is not None:
            self._serving.end()
            self._serving = None
        for listener in self._listeners:
            listener.close()

    @property
    def missing(self) -> list[RankAssignment]:
        """The assignments whose rank has not come up. Ranks that come up anew count when all have, and the earlier ones are gone."""
        with self._lock:
            if self._comes_anew and self._leaving:
                return list(self._assignments)
            return [self._assignments[each.rank] for each in self._ranks if each.hello is None]

    @property
    def _present(self) -> list[RankState]:
        """The ranks on whose answers others wait."""
        return [each for each in self._ranks if not each.is_absent]

    @property
    def coming(self) -> list[int]:
        """The ranks that the launcher has started again and that have not joined the others."""
        with self._lock:
            return [each.rank for each in self._ranks if each.is_coming]

    @property
    def training(self) -> list[int]:
        """The ranks that are neither lost nor coming."""
        with self._lock:
            return [each.rank for each in self._present if each.rank not in self._lost]

    def go_on_without(self, ranks: Iterable[int], *, replaced: bool = False) -> None:
        """The other ranks go on without these, which are lost. They count as lost no more, and may come up again.

        `replaced`: the launcher starts them again, and they have to join.
        """
        with self._lock:
            for each in (self._ranks[rank] for rank in ranks):
                if each.rank in self._lost:
                    self._lost.remove(each.rank)
                if (
                    each.connection is not None
                ):  # the rank hangs, and what comes of it now is of no use
                    each.connection.caller = each.connection.rank = None
                self._ranks[each.rank] = RankState(
                    each.rank,
                    hello=each.hello,
                    has_parted=each.has_parted,
                    is_absent=True,
                    is_coming=replaced,
                )
            # What waited only for ranks that are lost is answered now.
            self._decide_last_step()
            for name in {name for each in self._ranks for name in each.given}:
                self._answer_gathered(name)
            self._hear_early_ones()

    def begin_anew(self) -> None:
        """End all ranks: what has started them is about to start them all anew. None of them counts as lost any more.

        The new ones wait for `let_begin` when all have come up. A rank that hangs must be ended otherwise.
        """
        with self._lock:
            self._leaving |= {each.connection: each.rank for each in self._ranks if each.connection}
            self._begin()
            self._comes_anew = True
            for connection in self._leaving:
                connection.send(encoded({"end": True}))
            self._hear_early_ones()

    @property
    def leaving(self) -> list[int]:
        """The ranks that have not ended yet since `begin_anew`."""
        with self._lock:
            return list(self._leaving.values())

    @property
    def has_restarted(self) -> bool:
        """Whether all ranks have come up anew and wait for `let_begin`, and none of the earlier ones is left."""
        return self._comes_anew and not self.missing

    def let_begin(self, launched: str) -> None:
        """Answer the ranks that have come up anew. `launched` is passed on to them: when they were started."""
        with self._lock:
            self._comes_anew = False
            self._tell_all({"addresses": self._addresses(), "launched": launched})

    @property
    def lost(self) -> list[int]:
        """The ranks whose connection ended without a `bye`, in that order: they have died."""
        with self._lock:
            return list(self._lost)

    def silent(self, patience_s: float) -> list[int]:
        """The connected ranks that have not answered for so long. It takes `serve` with `pinging`."""
        before = time.monotonic() - patience_s
        with self._lock:
            return [each.rank for each in self._ranks if each.connection and each.heard < before]

    def ping(self) -> None:
        """Ask every rank for an answer, once all have come up. Called in the serving thread."""
        with self._lock:
            if self._is_full and not self._comes_anew:
                for each in self._ranks:
                    if each.connection:
                        each.heard = min(each.heard, time.monotonic())
                self._tell_all({"ping": True})

    @property
    def all_parted(self) -> bool:
        """Whether every rank has said `bye`, because it has nothing more to do."""
        with self._lock:
            return all(each.has_parted for each in self._present)

    @property
    def stopped_at(self) -> int | None:
        """Number of steps done when the ranks stopped on request; None until all have stopped."""
        with self._lock:
            stopped = [each.stopped for each in self._present if each.stopped is not None]
            return max(stopped, default=None) if len(stopped) == len(self._present) else None

    def raise_if_misplaced(self) -> None:
        """Raises LaunchError if an unexpected rank came up, or a rank came up on the wrong node."""
        if self._problem:
            raise LaunchError(self._problem)

    def ask_to_stop(self) -> None:
        """Ask all ranks to stop after the same step. All of them must have come up before."""
        with self._lock:
            self._is_asked = True
            self._tell_all({"stop": True})

    def handle(self, connection: Connection, message: Message) -> None:
        """Handle one message of a rank. Called in the serving thread."""
        with self._lock:
            if connection in self._leaving:
                return
            if connection.caller is None:
                given = str(message.get("token")).encode()
                if hmac.compare_digest(given, self.token.encode()):
                    connection.caller = message["rank"]
                else:
                    connection.hang_up()  # not a rank of this run
            elif connection.rank is None:
                self._welcome(connection, Hello(**message))
            else:
                self._obey(connection, self._ranks[connection.rank], message)

    def hung_up(self, connection: Connection) -> None:
        """Note that a connection has ended. Called in the serving thread."""
        with self._lock:
            if self._leaving.pop(connection, None) is not None:
                return
            rank = None if connection.rank is None else self._ranks[connection.rank]
            if connection.caller is None or (rank and rank.has_parted):
                return
            self._early = [
                (early, hello) for early, hello in self._early if early is not connection
            ]
            self._lost.append(connection.caller)
            if rank:
                rank.connection = None

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        ended = [each.rank for each in self._present if each.hello and each.connection is None]
        if hello.rank in ended:
            self._early.append(
                (connection, hello)
            )  # the launcher has not decided yet about the loss
            return
        others = [
            each.hello
            for each in self._ranks
            if each.hello and not (each.is_absent and each.rank == hello.rank)
        ]
        if problem := objection(hello, self._assignments, others):
            self._problem = self._problem or problem
            connection.hang_up()
            return
        rank = self._ranks[hello.rank]
        is_replacement = self._have_met and rank.is_absent
        rank.is_coming = rank.is_coming and self._have_met
        rank.is_absent = rank.is_coming
        rank.hello, rank.connection, connection.rank = hello, connection, hello.rank
        if is_replacement:
            self._answer_latecomer(connection)
        elif self._is_full and not self._comes_anew:
            self._have_met = True
            self._tell_all({"addresses": self._addresses()})

    def _answer_latecomer(self, connection: Connection) -> None:
        """With what the others have been told about a stop."""
        connection.send(encoded({"addresses": self._addresses(), "replaces": True}))
        if self._is_asked:
            connection.send(encoded({"stop": True}))
        if self._last_step is not None:
            connection.send(encoded({"last_step": self._last_step}))

    def _obey(self, connection: Connection, rank: RankState, message: Message) -> None:
        rank.heard = time.monotonic()
        if "bye" in message:
            rank.has_parted, rank.connection = True, None
            connection.hang_up()
        elif "entered" in message:
            rank.entered = message["entered"]
            self._decide_last_step()
        elif "stopped" in message:
            rank.stopped = message["stopped"]
            connection.send(encoded({"noted": True}))
        elif "join" in message:
            if not self._have_finished and not any(each.has_parted for each in self._ranks):
                rank.is_coming = rank.is_absent = False
                connection.send(encoded({"joined": True}))
        elif "gather" in message:
            rank.given[message["gather"]] = message["value"]
            self._answer_gathered(message["gather"])

    def _decide_last_step(self) -> None:
        """Decide it once, when all have entered a step that were asked to stop."""
        entered = [each.entered for each in self._ranks if each.entered is not None]
        waits = any(each.entered is None for each in self._present)
        if self._last_step is None and entered and not waits:
            self._last_step = max(entered)
            self._tell_all({"last_step": self._last_step})

    def _answer_gathered(self, name: str) -> None:
        """Tell all ranks the values of those that are present, when these have given theirs."""
        if all(name in each.given for each in self._present):
            values = [each.given[name] for each in self._present]
            for each in self._ranks:
                each.given.pop(name, None)
            self._have_finished |= name == FINISHED
            self._tell_all({"gathered": name, "values": values})

    def _hear_early_ones(self) -> None:
        early, self._early = self._early, []
        for connection, hello in early:
            self._welcome(connection, hello)

    @property
    def _is_full(self) -> bool:
        """Whether every rank has come up."""
        return all(each.hello for each in self._ranks)

    def _addresses(self) -> list[str]:
        """Call it when all have come up."""
        return addresses_of_ranks([each.hello for each in self._ranks if each.hello])

    def _tell_all(self, message: Message) -> None:
        """Send a message to all connected ranks."""
        said = encoded(message)
        for each in self._ranks:
            if each.connection:
                each.connection.send(said)
