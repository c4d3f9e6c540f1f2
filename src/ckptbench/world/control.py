"""The launcher's end of the control connections to its ranks: it knows which of them take part, are lost or come again.

It answers each message of a rank. Module `link` describes the messages, `lines` carries them, `rank_addresses` checks where
each rank came up, and `agreements` holds what the ranks have said until all have.
"""

from __future__ import annotations

import hmac
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ckptbench.common.errors import LaunchError
from ckptbench.world.agreements import Agreements, Message
from ckptbench.world.lines import Line, Serving, allow_lines
from ckptbench.world.link import FINISHED, Hello, encoded
from ckptbench.world.listening import listen
from ckptbench.world.rank_addresses import RankReports
from ckptbench.world.ranks import RankAssignment


class ControlServer:
    """The launcher's end. It listens from the start; `serve` begins to answer; `close` ends all connections."""

    def __init__(self, assignments: Sequence[RankAssignment], *, host: str) -> None:
        """Ranks connect to `host`, a name or address of this host that all of them can resolve."""
        self._assignments = assignments
        self._addresses = RankReports(assignments)
        self._agreements = Agreements()
        self._lines: dict[int, Line] = {}
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
        self._leaving: dict[Line, int] = {}
        """The lines of ranks that end, because all come up anew."""
        self._early: list[tuple[Line, Hello]] = []
        """The lines of ranks that came up anew before the launcher knew that they would."""
        self._comes_anew = False
        """Whether all ranks come up anew, and wait for their answer when they have."""
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._serving: Serving | None = None
        self.token = secrets.token_hex(16)
        self._listeners = listen(host, [assignment.node for assignment in assignments])
        self.address = f"{host}:{self._listeners[0].getsockname()[1]}"

    def serve(self, *, pinging: bool = False) -> None:
        """Start the thread that serves the ranks. Child processes must be started before.

        With `pinging` every rank is asked for an answer once a second, which `silent` needs.
        """
        allow_lines(len(self._assignments))
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
            return self._addresses.empty

    @property
    def _present(self) -> list[int]:
        """The ranks on whose answers others wait."""
        return [
            assignment.rank
            for assignment in self._assignments
            if assignment.rank not in self._absent
        ]

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
                self._agreements.forget(rank)
        self._soon(self._answer_what_is_whole)

    def begin_anew(self) -> None:
        """End all ranks: what has started them is about to start them all anew. None of them counts as lost any more.

        The new ones wait for `let_begin` when all have come up. A rank that hangs must be ended otherwise.
        """
        with self._lock:
            self._leaving |= {line: rank for rank, line in self._lines.items()}
            self._addresses.clear()
            self._agreements.clear()
            for known in (
                self._lines, self._lost, self._absent, self._coming, self._heard, self._parted
            ):  # fmt: skip
                known.clear()
            self._have_finished = False
            self._comes_anew = True
        self._soon(self._dismiss)

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
        self._soon(self._answer_all, launched)

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
            if self._addresses.is_full and not self._comes_anew:
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
            return self._agreements.stopped_at(self._present)

    def raise_if_misplaced(self) -> None:
        """Raises LaunchError if an unexpected rank came up, or a rank came up in the wrong place."""
        if self._problem:
            raise LaunchError(self._problem)

    def ask_to_stop(self) -> None:
        """Ask all ranks to stop after the same step. All of them must have come up before."""
        self._soon(self._ask_to_stop)

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the serving thread make this call soon. No rank hears anything before `serve` or after `close`."""
        if self._serving is not None:
            self._serving.soon(call, *arguments)

    def hear(self, line: Line, message: Message) -> None:
        """Handle one message of a rank. Called in the serving thread."""
        with self._lock:
            if line in self._leaving:
                return
            if line.caller is None:
                given = str(message.get("token")).encode()
                if hmac.compare_digest(given, self.token.encode()):
                    line.caller = message["rank"]
                else:
                    line.hang_up()  # not a rank of this run
            elif line.rank is None:
                self._welcome(line, Hello(**message))
            elif "bye" in message:
                self._parted.add(line.rank)
                del self._lines[line.rank]
                line.hang_up()
            else:
                self._obey(line, line.rank, message)

    def hung_up(self, line: Line) -> None:
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

    def _welcome(self, line: Line, hello: Hello) -> None:
        if hello.rank in self._addresses.hellos.keys() - self._lines.keys() - self._absent:
            self._early.append((line, hello))  # the launcher has not decided yet about the loss
            return
        if objection := self._addresses.objection(hello, self._absent):
            self._problem = self._problem or objection
            line.hang_up()
            return
        line.rank = hello.rank
        comes_again = self._have_met and hello.rank in self._absent
        if not self._have_met:
            self._coming.discard(hello.rank)
        if hello.rank not in self._coming:
            self._absent.discard(hello.rank)
        self._addresses.take(hello)
        self._lines[hello.rank] = line
        if comes_again:
            line.send(encoded({"addresses": self._addresses.addresses(), "again": True}))
            for message in self._agreements.for_a_latecomer():
                line.send(encoded(message))
        elif self._addresses.is_full and not self._comes_anew:
            self._have_met = True
            self._tell_all({"addresses": self._addresses.addresses()})

    def _obey(self, line: Line, rank: int, message: Message) -> None:
        self._heard[rank] = time.monotonic()
        if "entered" in message:
            self._agreements.enter(rank, message["entered"])
            self._tell_if_due(self._agreements.decide_last_step(self._present))
        elif "stopped" in message:
            self._agreements.stopped[rank] = message["stopped"]
            line.send(encoded({"noted": True}))
        elif "join" in message:
            self._join(line, rank)
        elif "gather" in message:
            self._agreements.give(rank, message["gather"], message["value"])
            self._answer_gathered(message["gather"])

    def _join(self, line: Line, rank: int) -> None:
        if self._have_finished or self._parted:
            return
        self._coming.discard(rank)
        self._absent.discard(rank)
        line.send(encoded({"joined": True}))

    def _answer_gathered(self, name: str) -> None:
        answer = self._agreements.gathered(name, self._present)
        self._have_finished |= answer is not None and name == FINISHED
        self._tell_if_due(answer)

    def _ask_to_stop(self) -> None:
        """Called in the serving thread."""
        with self._lock:
            self._agreements.is_asked = True
            self._tell_all({"stop": True})

    def _answer_what_is_whole(self) -> None:
        """Answer what waited only for ranks that are lost. Called in the serving thread."""
        with self._lock:
            self._tell_if_due(self._agreements.decide_last_step(self._present))
            for name in list(self._agreements.given):
                self._answer_gathered(name)
            self._hear_early_ones()

    def _dismiss(self) -> None:
        """Tell the ranks that are to end. Called in the serving thread."""
        with self._lock:
            for line in self._leaving:
                line.send(encoded({"end": True}))
            self._hear_early_ones()

    def _hear_early_ones(self) -> None:
        early, self._early = self._early, []
        for line, hello in early:
            self._welcome(line, hello)

    def _answer_all(self, launched: str) -> None:
        """Called in the serving thread."""
        with self._lock:
            self._comes_anew = False
            self._tell_all({"addresses": self._addresses.addresses(), "launched": launched})

    def _tell_if_due(self, message: Message | None) -> None:
        if message is not None:
            self._tell_all(message)

    def _tell_all(self, message: Message) -> None:
        """Send a message to all connected ranks. Called in the serving thread."""
        said = encoded(message)
        for line in self._lines.values():
            line.send(said)
