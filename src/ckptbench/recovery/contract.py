"""The contract of a recovery, which decides how training goes on after a failure.

A recovery has two halves: the launcher calls a `Recovery`, and every rank calls a `RankRecovery`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ckptbench.checkpoints.version import Version
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A failure: ranks, or the process that starts ranks, have ended too early."""

    ranks: tuple[int, ...]
    """The ranks that died first, as far as known. Empty if the process that starts ranks ended."""
    how: str
    """The failure in words, with the last lines of the ranks' logs."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """The surviving ranks go on by themselves. The launcher still watches them and ignores the lost ranks."""


@dataclass(frozen=True, slots=True)
class Relaunch:
    """The launcher ends all ranks that still run, and starts those of the plan from `Recovery.next_attempt`."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run has failed and is not continued."""

    reason: str


Verdict = GoOn | Relaunch | GiveUp


class Recovery(ABC):
    """The half of a recovery that the launcher calls."""

    @abstractmethod
    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        """The command that starts the ranks: `rank` itself, or a program of the recovery that runs `rank`."""

    @abstractmethod
    def after(self, loss: Loss, plan: Plan) -> Verdict:
        """The decision after a failure. Other ranks may still run, so no checkpoint can be chosen yet."""

    @abstractmethod
    def next_attempt(self, plan: Plan, newest: Version | None) -> Plan:
        """The plan of the next attempt. No rank runs at this time. `newest` is the newest sound version; None: there is
        none.

        Raises LaunchError if the recovery cannot go on without a version.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouped:
    """The agreement of the ranks that go on after a failure."""

    position: Position
    """The position after which training goes on."""
    version: Version | None = None
    """The version that every rank loads first. None: every rank already has the state of `position`."""


class RankRecovery(ABC):
    """The half of a recovery that every rank calls."""

    @abstractmethod
    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        """Agree with the surviving ranks how to go on after `error`, which ended the step after `reached`.

        Raises `error` again if the death of another rank did not cause it, or if this rank must not go on.
        """

    @abstractmethod
    def admit(self, reached: Position) -> Regrouped | None:
        """The agreement with new ranks that join after `reached`; None if none join.

        Called before every step, so it must find out without communication that no rank joins.
        """
