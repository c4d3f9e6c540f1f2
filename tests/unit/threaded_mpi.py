"""The part of MPI with user-level failure mitigation that `ulfm` uses, between threads of one process, each of which is a rank.

Its rules are those of the MPI Forum's proposal: a collective ends with an error if a member is lost or the communicator is
revoked, an agreement and a shrink do not, and an agreement gives all the same answer: an error, unless each has acknowledged
every loss.
"""

# ruff: noqa: N802 (the names are those of mpi4py)

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

PATIENCE_S = 30.0


class MpiError(Exception):
    """What `MPI.Exception` is."""


class Hang(BaseException):
    """Ranks wait for each other in different calls."""


class Job:
    """The ranks that were started together."""

    def __init__(self, size: int) -> None:
        self.changed = threading.Condition()
        self.lost: set[int] = set()
        self.world = Shared(self, tuple(range(size)))

    def lose(self, rank: int) -> None:
        with self.changed:
            self.lost.add(rank)
            self.changed.notify_all()

    def of(self, rank: int) -> SimpleNamespace:
        """What the module `mpi4py.MPI` is to this rank."""
        none = object()
        return SimpleNamespace(
            COMM_NULL=none,
            COMM_WORLD=Communicator(self.world, rank),
            Comm=SimpleNamespace(Get_parent=lambda: none),
            Exception=MpiError,
        )


class Shared:
    """What the members of a communicator have in common."""

    def __init__(self, job: Job, members: tuple[int, ...]) -> None:
        self.job = job
        self.members = members
        self.is_revoked = False
        self.acknowledged: dict[int, set[int]] = {member: set() for member in members}
        """By rank: the losses that it has acknowledged."""
        self.calls: dict[int, list[tuple[str, Any]]] = {member: [] for member in members}
        """By rank, in their order: the name of each call, and what was given."""
        self.answers: dict[int, Any] = {}
        """By the number of the call."""

    @property
    def left(self) -> list[int]:
        return [member for member in self.members if member not in self.job.lost]


class Communicator:
    """A rank's end of it."""

    def __init__(self, shared: Shared, member: int) -> None:
        self._shared = shared
        self._member = member

    @property
    def size(self) -> int:
        return len(self._shared.members)

    @property
    def rank(self) -> int:
        return self._shared.members.index(self._member)

    def Dup(self) -> Communicator:
        return self

    def Revoke(self) -> None:
        with self._shared.job.changed:
            self._shared.is_revoked = True
            self._shared.job.changed.notify_all()

    def Ack_failed(self) -> None:
        self._shared.acknowledged[self._member] |= self._shared.job.lost

    def allgather(self, value: Any) -> list[Any]:
        return self._call("allgather", value, list, may_fail=True)

    def Barrier(self) -> None:
        self._call("Barrier", None, list, may_fail=True)

    def Agree(self, flag: int) -> int:
        def answer(flags: list[int]) -> tuple[bool, int]:
            heard = {*self._shared.members} & self._shared.job.lost
            known = [self._shared.acknowledged[each] for each in self._shared.left]
            return all(own >= heard for own in known), int(all(flags))

        is_well, agreed = self._call("Agree", flag, answer)
        if not is_well:
            raise MpiError("MPI_ERR_PROC_FAILED")
        return agreed

    def Shrink(self) -> Communicator:
        shared = self._call(
            "Shrink", None, lambda _: Shared(self._shared.job, tuple(self._shared.left))
        )
        return Communicator(shared, self._member)

    def _call(
        self, name: str, value: Any, answer: Callable[[list[Any]], Any], *, may_fail: bool = False
    ) -> Any:
        """What `answer` makes of the values of all that are left, once they are in the same call."""
        shared, job = self._shared, self._shared.job
        with job.changed:
            own = shared.calls[self._member]
            number = len(own)
            own.append((name, value))
            job.changed.notify_all()
            while number not in shared.answers:
                if may_fail and (shared.is_revoked or len(shared.left) < len(shared.members)):
                    own.pop()
                    raise MpiError("MPI_ERR_REVOKED")
                others = [shared.calls[each] for each in shared.left]
                if all(len(calls) > number for calls in others):
                    if {calls[number][0] for calls in others} != {name}:
                        raise Hang(f"{name} and another call: {others}")
                    shared.answers[number] = answer([calls[number][1] for calls in others])
                    job.changed.notify_all()
                elif not job.changed.wait(PATIENCE_S):
                    raise Hang(f"{name}: {shared.calls}")
            return shared.answers[number]
