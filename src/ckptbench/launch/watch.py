"""Starts the processes of a run and watches them until all have ended, one has died or a limit is reached.

Module `child_process` has the processes, `losses` says when one is lost, and `limits` when it takes too long. Here stands what
follows: the recovery decides about each loss, and the watch does as it says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Protocol

from ckptbench.common.clock import Instant
from ckptbench.common.errors import LaunchError, RunStopped
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.launch.child_process import ChildProcess, Group, kill_ranks_here
from ckptbench.launch.limits import Deadlines, Limits
from ckptbench.launch.losses import Losses
from ckptbench.launch.starters import Process
from ckptbench.run.control.server import ControlServer
from ckptbench.run.control.variables import LAUNCHED

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2


class Between(Protocol):
    """What the launcher does between two attempts."""

    def all_ended(self) -> None:
        """Note that no rank of the last attempt runs any more."""

    def choose(self) -> None:
        """Choose what the next attempt goes on from. No rank trains meanwhile."""


def give_up(loss: Loss) -> Verdict:
    """The default answer to a loss: the run has failed."""
    return Verdict.GIVE_UP


def run_processes(
    processes: list[Process],
    environment: dict[str, str],
    limits: Limits,
    control: ControlServer,
    *,
    after: Callable[[Loss], Verdict] = give_up,
    between: Between | None = None,
) -> bool:
    """Start all processes and wait until all have ended. Returns whether they are to be started again.

    As soon as one ends badly, `after` decides: the others go on and are watched, or all are ended. Raises LaunchError if
    it gives up. If it answers RESTART_IN_PLACE, `between` is called when the ranks have ended, and when they have come up anew.
    """
    with ExitStack() as stack:
        ends = stack.enter_context(ExitStack())  # also of those that are started later

        def start(process: Process, *, again: bool = False) -> ChildProcess:
            own = {**environment, LAUNCHED: str(Instant.now())} if again else environment
            watched = ChildProcess.start(process, own, has_threads=again)
            ends.callback(watched.end)
            return watched

        group = Group([start(process) for process in processes])
        # This runs before the processes are ended: ranks that see the connection closed end by themselves.
        stack.callback(control.close)
        control.serve(pinging=limits.patience_s is not None)
        return _Watch(
            group, limits, control, after, again=partial(start, again=True), between=between
        ).until_all_have_ended()


class _Watch:
    """Checks the processes of one run, five times a second."""

    def __init__(
        self,
        group: Group,
        limits: Limits,
        control: ControlServer,
        after: Callable[[Loss], Verdict],
        *,
        again: Callable[[Process], ChildProcess],
        between: Between | None,
    ) -> None:
        self._group = group
        self._limits = limits
        self._control = control
        self._after = after
        self._again = again
        self._between = between
        self._losses = Losses(group, control, limits)
        self._deadlines = Deadlines(limits, group)
        self._anew_since: float | None = None
        """Monotonic time at which ranks were lost, until all have come up anew."""
        self._launched: str | None = None
        """When all ranks of the attempt before had ended, while new ones come up."""

    def until_all_have_ended(self) -> bool:
        while True:
            self._end_late_ones()
            ended = self._group.is_over
            if ended:
                self._group.relay()
            else:
                self._group.relay_rarely()
            loss = self._losses.found()
            if loss is not None and self._ask(loss):
                return True
            if ended or self._linger():
                return False
            self._deadlines.raise_if_too_late()
            self._supervise()
            time.sleep(POLL_SECONDS)

    def _ask(self, loss: Loss) -> bool:
        """Decide about a loss. Returns whether all are started again. Raises LaunchError if the run has failed."""
        # A run that was told to stop is not started again.
        verdict = give_up(loss) if self._limits.stop.signal else self._after(loss)
        match verdict:
            case Verdict.RELAUNCH:
                if loss.hangs:  # what has started them might first end what they have started, as their injectors
                    self._kill_here(loss)
                return True
            case Verdict.GIVE_UP:
                raise LaunchError(loss.how)
            case Verdict.GO_ON:
                if loss.hangs and not self._kill_here(loss):
                    log.warning("ranks hang on other nodes: all are started again")
                    return True
                self._go_on_without(loss)
            case Verdict.REPLACE:
                return self._replace(loss)
            case Verdict.RESTART_IN_PLACE:
                self._have_all_come_anew(loss)
        return False

    def _go_on_without(self, loss: Loss) -> None:
        """Watch the survivors alone. Raises LaunchError if there are none."""
        self._losses.others_go_on()
        self._control.go_on_without(loss.ranks)
        for process in self._group:
            if process.rank in loss.ranks:
                process.relay()
        self._group.take_out(self._group.dead)
        if not self._group and not self._control.all_parted:
            raise LaunchError(f"no rank is left to go on: {loss.how}")

    def _replace(self, loss: Loss) -> bool:
        """Start the processes of the lost ranks anew. Returns whether all are, as something else has started them."""
        lost = {each.rank: each for each in self._group if each.rank in loss.ranks}
        if not lost.keys() >= {*loss.ranks}:
            log.warning("a scheduler's starter cannot start single ranks: all are started again")
            return True
        self._losses.others_go_on()
        self._control.go_on_without(loss.ranks, replaced=True)
        for each in lost.values():
            each.end(at_once=loss.hangs)
            each.relay()
            self._group.take_out([each])
            self._group.add(self._again(each.process))
            log.info("rank %s is restarted", each.rank)
        return False

    def _have_all_come_anew(self, loss: Loss) -> None:
        """Have all ranks end: what has started them starts them anew, and `_see_all_anew` lets them begin."""
        self._control.begin_anew()
        if loss.hangs:
            self._kill_here(loss)  # on other nodes what starts them does, in time
        self._anew_since = time.monotonic()
        self._launched = None
        self._losses.all_come_anew()
        self._deadlines.begin_anew()

    def _kill_here(self, loss: Loss) -> bool:
        """End ranks that hang, and say whether all of them run on this host."""
        return kill_ranks_here(loss.ranks, self._control.token)

    def _end_late_ones(self) -> None:
        """End the ranks that were started again and are not ready when the others have said goodbye."""
        if not self._control.coming or not self._control.all_parted:
            return
        late = self._control.coming
        self._control.go_on_without(late)
        for each in [each for each in self._group if each.rank in late]:
            log.info("rank %s is not needed any more: training is over", each.rank)
            each.end(at_once=True)
            self._group.take_out([each])

    def _supervise(self) -> None:
        self._control.raise_if_misplaced()
        self._see_all_anew()
        missing = self._control.missing
        if self._limits.stop.signal and missing:
            raise RunStopped(self._limits.stop.signal, None)
        if self._deadlines.begins_to_stop():
            log.info("asked to stop by %s: saving a checkpoint", self._limits.stop.signal)
            self._control.ask_to_stop()
        self._deadlines.raise_if_not_stopped()
        self._deadlines.raise_if_not_up(missing)

    def _see_all_anew(self) -> None:
        """Have ranks begin that are started anew after a loss, when all have come up."""
        if self._anew_since is None:
            return
        assert self._between is not None
        patience_s = self._limits.patience_s
        if leaving := self._control.leaving:
            if patience_s is not None and time.monotonic() - self._anew_since > patience_s:
                kill_ranks_here(leaving, self._control.token)
            return
        if self._launched is None:
            self._launched = str(Instant.now())
            self._between.all_ended()
        if self._control.has_restarted:
            self._between.choose()
            self._control.let_begin(self._launched)
            self._anew_since = None

    def _linger(self) -> bool:
        """Whether processes still run long after all ranks have said goodbye. This was seen with srun.

        The results are complete. Without this check the run would hang until the job's time limit.
        """
        if not self._control.all_parted or (patience := self._deadlines.lingers()) is None:
            return False
        late = [each for each in self._group if not each.is_over]
        names = ", ".join(f"{each.followers[0].path.stem} ({each.running.pid})" for each in late)
        log.warning("all ranks said goodbye %g s ago: ended what still ran, %s", patience, names)
        return True
