"""Which processes or ranks a run has lost, and how: by an exit status, by a connection that ended, or by silence."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from ckptbench.common.memory_kills import REMEDY
from ckptbench.failures.recovery.contract import Loss
from ckptbench.launch.child_process import ChildProcess, Group
from ckptbench.launch.limits import Limits
from ckptbench.run.control.server import ControlServer

LAST_LINES_SECONDS = 0.2
"""Time after which the last lines of a process that has died are visible in its logs."""


class Losses:
    """Looks for losses among the processes of one attempt, and among the ranks that are connected to the launcher."""

    def __init__(self, group: Group, control: ControlServer, limits: Limits) -> None:
        self._group = group
        self._control = control
        self._limits = limits
        self._lost_since: float | None = None
        self._has_gone_on = False

    def found(self) -> Loss | None:
        """The first loss about which nothing has been decided yet."""
        loss = self._death() or self._silence()
        if loss is None:
            return None
        left = [rank for rank in self._control.training if rank not in loss.ranks]
        return dataclasses.replace(loss, left=tuple(left))

    def others_go_on(self) -> None:
        """The others go on without those that were lost last."""
        self._has_gone_on = True
        self._lost_since = None

    def all_come_anew(self) -> None:
        """All ranks are started anew after the last loss."""
        self._lost_since = None

    def _death(self) -> Loss | None:
        """The process that died first. Later ones may have died only because it was missing."""
        dead = self._group.dead
        if dead and self._control.all_parted and self._has_gone_on:
            # What starts ranks ends badly because of those that were lost on the way. The others have said goodbye.
            self._group.take_out(dead)
            return None
        if not dead:
            return self._loss_at_the_end()
        self._control.raise_if_misplaced()  # a wrong place explains more than the exit status
        time.sleep(LAST_LINES_SECONDS)
        # A process that died before its rank called the launcher is not in `lost`. It comes first.
        lost = self._control.lost
        first = min(dead, key=lambda each: lost.index(each.rank) if each.rank in lost else -1)
        return _death_of(first, lost)

    def _loss_at_the_end(self) -> Loss | None:
        """Ranks whose connection broke although the process that started them ended well, as Open MPI's mpiexec does."""
        lost = self._control.lost if self._group.is_over else []
        return self._loss_of(lost, "died") if lost else None

    def _silence(self) -> Loss | None:
        """Ranks that hang, and ranks whose connection broke although the process that started them still runs.

        Before MPI is up, mpiexec does so.
        """
        patience_s = self._limits.patience_s
        if patience_s is not None and (hanging := self._control.silent(patience_s)):
            return self._loss_of(hanging, f"did not answer for {patience_s:g} s", hangs=True)
        lost = self._control.lost
        if not lost:
            self._lost_since = None
            return None
        self._lost_since = self._lost_since or time.monotonic()
        if time.monotonic() - self._lost_since <= self._limits.grace_s:
            return None
        return self._loss_of(lost, "died")

    def _loss_of(self, ranks: Sequence[int], how: str, *, hangs: bool = False) -> Loss:
        self._group.relay()
        named = " and ".join(f"rank-{rank}" for rank in ranks)
        if kills := self._group.memory_kills:
            how = f"{how}; {kills}: {REMEDY}"
        how = f"{named} {how}; last lines:\n{self._group.tails()}"
        return Loss(ranks=tuple(ranks), how=how, hangs=hangs)


def _death_of(watched: ChildProcess, lost: Sequence[int]) -> Loss:
    """The loss of this process, which has ended badly. `lost` are the ranks whose connections have broken."""
    watched.relay()
    return Loss(
        ranks=tuple(lost) if watched.rank is None else (watched.rank,),
        how=f"{watched.who} {watched.how}; last lines:\n{watched.tails()}",
    )
