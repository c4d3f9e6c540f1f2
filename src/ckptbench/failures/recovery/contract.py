"""The contract of a recovery, which decides how training goes on after a failure.

A recovery has two halves: the launcher calls a `Recovery`, and every rank calls a `RankRecovery`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn

from ckptbench.common.errors import LaunchError
from ckptbench.common.objects import Place
from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.plugin_spec import Option
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.events import Strike
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position
from ckptbench.run.strikes import have_passed, recorded_strikes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A failure: ranks, or the process that starts ranks, have ended too early."""

    ranks: tuple[int, ...]
    """The ranks that died first, as far as known. Empty if the process that starts ranks ended."""
    how: str
    """The failure in words, with the last lines of the ranks' logs."""
    hangs: bool = False
    """Whether the ranks still run, but do not answer."""
    left: tuple[int, ...] = ()
    """The ranks that still train, as far as known: neither lost, nor started in place of a lost one and still coming up."""


class Verdict(Enum):
    """What the launcher does about a loss."""

    GO_ON = auto()
    """It still watches the surviving ranks, which go on by themselves, and ends lost ranks that hang, so that these notice."""
    REPLACE = auto()
    """As GO_ON, and it starts the processes of the lost ranks anew. Where it cannot, it relaunches all.

    A new process has `Link.is_replacement` and calls `Link.join` when it is about to train; until then the launcher has nobody
    wait for it. One that has not joined when the others have finished (`Link.finish`) is ended.
    """
    RESTART_IN_PLACE = auto()
    """It has the ranks end, and the command of the recovery, which goes on, starts all of them anew.

    When these have come up they wait until the launcher has chosen what to go on from: the plan from `next_attempt`.
    """
    RELAUNCH = auto()
    """It ends all ranks that still run, and starts those of the plan from `next_attempt`."""
    GIVE_UP = auto()
    """The run has failed and is not continued."""


class Recovery(ABC):
    """The half of a recovery that the launcher calls."""

    def options(self, plan: Plan) -> dict[str, Option]:
        """Those of the cell's `recovery`, with defaults."""
        recovery = plan.cell.recovery
        return recovery.chosen(RECOVERIES[recovery.name].options)

    def patience_s(self, plan: Plan) -> float | None:
        """How long a rank may be silent before it counts as lost, in seconds. None: for ever."""
        if plan.cell.is_struck or RECOVERIES[plan.cell.recovery.name].elastic:
            return float(self.options(plan)["patience_s"])
        return None

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        """The command that starts the ranks: `rank` itself, or a program of the recovery that runs `rank`."""
        return list(rank)

    @contextmanager
    def environment(self) -> Iterator[Mapping[str, str]]:
        """Environment variables for the command, and what they name, while an attempt runs."""
        yield {}

    @abstractmethod
    def after(self, loss: Loss, plan: Plan) -> Verdict:
        """The decision after a failure. Other ranks may still run, so no checkpoint can be chosen yet."""


def next_attempt(plan: Plan, version: Place | None, *, attempt: int) -> Plan:
    """The plan of the attempt that goes on from the folder `version`, or begins anew where there is none. No rank trains at this time.

    Raises LaunchError if a run of the resume proof would begin anew: that would prove nothing.
    """
    if version is not None:
        log.info("attempt %d goes on from %s", attempt, version)
    elif plan.cell.is_killed:
        raise LaunchError(
            f"{plan.checkpoint_folder} holds no sound version to restart from; see the log above"
        )
    else:
        log.info("attempt %d starts from the beginning: there is no version yet", attempt)
    return dataclasses.replace(
        plan,
        attempt=attempt,
        resume_from=version,
        strikes=len(recorded_strikes(plan.run_folder)),
    )


def possible_causes(loss: Loss, plan: Plan) -> list[Strike]:
    """The failures that struck this attempt, without hangs that had passed when ranks were lost by something else."""
    over = have_passed(plan.run_folder)
    # Those before this attempt have explained what ended it, also where an earlier launcher saw that.
    return [
        strike
        for strike in recorded_strikes(plan.run_folder)[plan.strikes :]
        if not (strike.kind == "hang" and not loss.hangs and strike.failure in over)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouped:
    """The agreement of the ranks that go on together, on one of them. Each has the state of that step, unless all go back to a version."""

    step: int | None
    """Completed steps of the whole run after which they go on. None: those of the newest version, which all are to load."""
    ranks: tuple[int, ...]
    """Those that train from now on, by their numbers in the run. The first one does what rank 0 does at other times."""
    noticed_ns: int
    """When this rank's step had failed, or when it knew of ranks that join."""
    agreed_ns: int
    """When the ranks had agreed on `step` and `ranks`."""
    ready_ns: int
    """When this rank had the state, or was about to load it."""
    bytes: int = 0
    """Bytes of the state that came from another rank. 0: this rank had it."""


class RankRecovery:
    """The half of a recovery that every rank calls. By itself it leaves everything to the framework and the launcher.

    Calls come in this order: the constructor; `framework_world`; `adopt`, when the framework has joined; `join`, when it is
    built; then `barrier`, `admit` and `regroup` in any order, and `finish`, after which `regroup` may come again; `close` or
    `abort`; `leave`. What these do not describe, a training loop does not have to know about a recovery.
    """

    part_read: float = 1.0
    """The part of every global batch that the ranks read that train now. The training loop keeps it up to date."""

    def __init__(self, world: RankContext, link: Link, options: Mapping[str, Option]) -> None:
        """`options` are those of the cell's `recovery`, with defaults."""
        self.world = world
        self.link = link
        self.options = options

    @property
    def framework_world(self) -> RankContext:
        """What the framework is told of its place. One that is told to be alone leaves communication to the recovery."""
        return self.world

    def adopt(self, framework: Framework) -> None:
        """Take the framework, which has joined the others and is not built yet."""
        self.framework = framework

    def join(self, reached: Position) -> Regrouped | None:
        """Join ranks that train already, after this one has built its network; None if all ranks begin together.

        `reached` is the position after the version that this attempt has loaded, or the beginning.
        """
        return None

    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        """Agree with the surviving ranks how to go on after `error`, which ended what came after `reached`.

        Raises `error` again if the death of another rank did not cause it, or if this rank must not go on.
        """
        raise error

    def admit(self, reached: Position) -> Regrouped | None:
        """The agreement with new ranks that join after `reached`; None if none join.

        Called before every step. Only where ranks may join it may communicate, and then its time is training time.
        """
        return None

    def barrier(self) -> None:
        """Return when every rank that trains has called it."""
        self.framework.barrier()

    def finish(self) -> None:
        """Called when this rank is about to end: after the last evaluation, or after the checkpoint before a stop.

        A recovery may have the ranks agree here. Then it raises on all of them, or on none, if one is lost before.
        """

    def close(self) -> None:
        """Part from the other ranks in an orderly way. Called once, when training has ended well."""
        self.framework.close()

    def abort(self) -> None:
        """As `Framework.abort`: other ranks must not wait for this one, which has failed."""
        self.framework.abort()

    def leave(self, status: int) -> None:
        """The last call of this process. It may end it with this exit status, if a library would hang at Python's end."""


def end_at_once(status: int) -> NoReturn:
    """End this process without Python's end, in which a library may wait for other ranks."""
    flush()
    os._exit(status)


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
