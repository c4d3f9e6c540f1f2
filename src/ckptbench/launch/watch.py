"""Starts the processes of a run and watches them until all have ended, one has died or a limit is reached."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from ckptbench.errors import LaunchError, RunStopped
from ckptbench.launch.starters import Process
from ckptbench.launch.stopping import StopRequest
from ckptbench.machine.clock import boot_id, clock
from ckptbench.recovery.contract import ComeAnew, GiveUp, GoOn, Loss, Relaunch, Replace, Verdict
from ckptbench.world.control import ControlServer
from ckptbench.world.processes import (
    die_with_parent,
    ignore_stop_signals,
    is_orphan,
    living_with,
)
from ckptbench.world.variables import LAUNCHED, RANK, TOKEN, rank_of

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0
KILL_SECONDS = 10.0
RELAY_SECONDS = 1.0
COME_UP_SECONDS = 300.0
STOP_SECONDS = 600.0
PART_SECONDS = 60.0
"""Time that processes may take to end after every rank has said goodbye."""
TAIL_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end a run that does not end by itself. All attempts at a run share one object."""

    timeout_seconds: float | None = None
    stop: StopRequest = field(default_factory=StopRequest)
    started: float = field(default_factory=time.monotonic)
    """Monotonic time at which the run began, in seconds."""
    patience_s: float | None = None
    """A rank that has not answered for so long is lost. None: ranks are not asked."""
    grace_s: float = GRACE_SECONDS
    """How long the launcher waits for the exit status of a rank that hung up, which says more."""
    parent: int = field(default_factory=os.getppid)
    """Id of the process that started the launcher. When that process is gone, the run is ended."""


class Between(Protocol):
    """What the launcher does between two attempts."""

    def all_ended(self) -> None:
        """Note that no rank of the last attempt runs any more."""

    def choose(self) -> None:
        """Choose what the next attempt goes on from. No rank trains meanwhile."""


@dataclass(slots=True)
class LogFollower:
    """Reads the lines that were added to a log since the last look."""

    path: Path
    tail: list[str] = field(default_factory=list)
    """The last lines seen."""
    _position: int = 0

    @classmethod
    def from_now(cls, path: Path) -> Self:
        """Starts at the end of the file, so that lines of an earlier attempt are left out."""
        return cls(path, _position=path.stat().st_size if path.exists() else 0)

    def new_lines(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        self.tail = [*self.tail, *lines][-TAIL_LINES:]
        return lines


def give_up(loss: Loss) -> Verdict:
    """The default answer to a loss: the run has failed."""
    return GiveUp(loss.how)


def run_processes(
    processes: list[Process],
    environment: dict[str, str],
    limits: Limits,
    *,
    control: ControlServer | None = None,
    after: Callable[[Loss], Verdict] = give_up,
    between: Between | None = None,
) -> Relaunch | None:
    """Start all processes and wait until all have ended. Returns None if all have ended well.

    As soon as one ends badly, `after` decides: the others go on and are watched, or all are ended. Returns its
    Relaunch if it wants the ranks started again. Raises LaunchError if it gives up. If it answers ComeAnew, `between` is
    called when the ranks have ended, and when they have come up anew.
    """
    with ExitStack() as stack:
        ends = stack.enter_context(ExitStack())  # also of those that are started later

        def start(process: Process, *, again: bool = False) -> _Watched:
            followers = [LogFollower.from_now(path) for path in process.logs]
            own = {**environment, LAUNCHED: launched_now()} if again else environment
            running = _start(process, own, has_threads=again)
            ends.callback(_end, running)
            rank = int(process.variables[RANK] or 0) if process.is_rank else None
            return _Watched(process, running, followers, rank)

        watched = [start(process) for process in processes]
        if control is not None:
            # This runs before the processes are ended: ranks that see the line closed end by themselves.
            stack.callback(control.close)
            control.serve(pinging=limits.patience_s is not None)
        return _Watch(
            watched, limits, control, after, again=partial(start, again=True), between=between
        ).until_all_have_ended()


def launched_now() -> str:
    """The value of the variable LAUNCHED for processes that are started now."""
    return f"{boot_id()} {clock()} {time.time_ns()}"


def _start(
    process: Process, environment: dict[str, str], *, has_threads: bool = False
) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, so that everything that it starts can be ended with it.

    Where this process `has_threads`, nothing may run between fork and exec. A rank prepares itself then (`become_rank`), and
    one that does not come so far ends because it cannot reach its launcher.
    """
    variables = {**environment, **process.variables}
    launcher = os.getpid()

    def prepare() -> None:
        die_with_parent(launcher)
        if (
            process.ignores_stops
        ):  # from the beginning, as a scheduler may signal every process of a job
            ignore_stop_signals()

    try:
        with process.logs[0].open("ab") as output:
            return subprocess.Popen(
                process.command,
                env={name: value for name, value in variables.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=None if has_threads else prepare,  # noqa: PLW1509 (it has one thread then)
            )
    except OSError as error:
        raise LaunchError(
            f"{process.command[0]} cannot be started ({error.strerror}): if its environment is broken, remove the "
            "environment's folder and run the study again, which makes it anew"
        ) from error


@dataclass(slots=True)
class _Watched:
    process: Process
    running: subprocess.Popen[bytes]
    followers: list[LogFollower]
    rank: int | None
    """None: the process starts ranks and is none itself."""

    def relay(self) -> None:
        for follower in self.followers:
            for line in follower.new_lines():
                log.info("[%s] %s", follower.path.stem, line)

    def tails(self) -> str:
        lines = [f"    [{f.path.stem}] {line}" for f in self.followers for line in f.tail]
        return (
            "\n".join(lines) or f"    (nothing in {', '.join(str(f.path) for f in self.followers)})"
        )

    def death(self, lost: Sequence[int]) -> Loss:
        """The loss that this process is. Call it when the process has ended badly; `lost` are the ranks known to be."""
        self.relay()
        who = " or ".join(follower.path.stem for follower in self.followers)
        return Loss(
            ranks=tuple(lost) if self.rank is None else (self.rank,),
            how=f"{who} {_how(self.running.returncode)}; last lines:\n{self.tails()}",
        )


class _Watch:
    """Checks the processes of one run, five times a second."""

    def __init__(
        self,
        watched: list[_Watched],
        limits: Limits,
        control: ControlServer | None,
        after: Callable[[Loss], Verdict],
        *,
        again: Callable[[Process], _Watched],
        between: Between | None,
    ) -> None:
        self._watched = watched
        self._after = after
        self._again = again
        self._between = between
        self._limits = limits
        self._control = control
        self._started = time.monotonic()
        self._relayed = 0.0
        self._asked_to_stop: float | None = None
        self._lost_since: float | None = None
        self._has_gone_on = False
        self._anew_since: float | None = None
        """Monotonic time at which ranks were lost, until all have come up anew."""
        self._launched: str | None = None
        """When all ranks of the attempt before had ended, while new ones come up."""
        self._parted_since: float | None = None

    def until_all_have_ended(self) -> Relaunch | None:
        while True:
            self._end_late_ones()
            ended = all(process.running.poll() is not None for process in self._watched)
            self._relay(ended)
            loss = self._death() or self._silence()
            if loss is not None and (relaunch := self._ask(loss)) is not None:
                return relaunch
            if ended or (self._control is not None and self._linger(self._control)):
                return None
            if self._parted_since is None:
                self._raise_if_too_late()
            if self._control is not None:
                self._supervise(self._control)
            time.sleep(POLL_SECONDS)

    def _ask(self, loss: Loss) -> Relaunch | None:
        """Decide about a loss. Returns a Relaunch, or None if the survivors go on. Raises LaunchError if the run has failed."""
        if self._control is not None:
            left = [rank for rank in self._control.training if rank not in loss.ranks]
            loss = dataclasses.replace(loss, left=tuple(left))
        # A run that was told to stop is not started again.
        verdict = give_up(loss) if self._limits.stop.signal else self._after(loss)
        match verdict:
            case Relaunch():
                if loss.hangs:  # what has started them might first end what they have started, as their strikers
                    self._end_here(loss.ranks)
                return verdict
            case GiveUp(reason=reason):
                raise LaunchError(reason)
            case GoOn():
                if loss.hangs and not self._end_here(loss.ranks):
                    log.warning("ranks hang on other nodes: all are started again")
                    return Relaunch()
                self._go_on_without(loss)
            case Replace():
                return self._replace(loss)
            case ComeAnew():
                assert self._control is not None
                self._control.begin_anew()
                if loss.hangs:
                    self._end_here(loss.ranks)  # on other nodes what starts them does, in time
                self._started = self._anew_since = time.monotonic()
                self._launched = self._lost_since = self._parted_since = None
        return None

    def _replace(self, loss: Loss) -> Relaunch | None:
        """Start the processes of the lost ranks anew. Returns a Relaunch where something else has started them."""
        lost = {each.rank: each for each in self._watched if each.rank in loss.ranks}
        if not lost.keys() >= {*loss.ranks}:
            log.warning("a scheduler's starter cannot start single ranks: all are started again")
            return Relaunch()
        assert self._control is not None
        self._has_gone_on = True
        self._control.go_on_without(loss.ranks, replaced=True)
        for each in lost.values():
            _end(each.running, at_once=loss.hangs)
            each.relay()
            self._watched.remove(each)
            self._watched.append(self._again(each.process))
            log.info("rank %s is started again", each.rank)
        self._lost_since = None
        return None

    def _end_late_ones(self) -> None:
        """End the ranks that were started again and are not ready when the others have said goodbye."""
        if self._control is None or not self._control.coming or not self._control.all_parted:
            return
        late = self._control.coming
        self._control.go_on_without(late)
        for each in [each for each in self._watched if each.rank in late]:
            log.info("rank %s is not needed any more: training is over", each.rank)
            _end(each.running, at_once=True)
            self._watched.remove(each)

    def _end_here(self, ranks: Sequence[int]) -> bool:
        """End ranks that hang, and say whether all of them run on this host: on others nobody is there to do it."""
        assert self._control is not None
        living = living_with(TOKEN, self._control.token)
        of_rank = {pid: rank_of(started) for pid, started in living.items()}
        if not {*of_rank.values()} >= {*ranks}:
            return False
        for pid, rank in of_rank.items():
            if rank in ranks:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return True

    def _go_on_without(self, loss: Loss) -> None:
        """Watch the survivors alone. Raises LaunchError if there are none."""
        assert self._control is not None
        self._has_gone_on = True
        self._control.go_on_without(loss.ranks)
        for process in self._watched:
            if process.rank in loss.ranks:
                process.relay()
        self._watched = [each for each in self._watched if not each.running.poll()]
        if not self._watched and not self._control.all_parted:
            raise LaunchError(f"no rank is left to go on: {loss.how}")
        self._lost_since = None

    def _death(self) -> Loss | None:
        """The process that died first. Later ones may have died only because it was missing."""
        dead = [process for process in self._watched if process.running.poll()]
        if dead and self._control is not None and self._control.all_parted and self._has_gone_on:
            # What starts ranks ends badly because of those that were lost on the way. The others have said goodbye.
            self._watched = [each for each in self._watched if each not in dead]
            return None
        if not dead:
            return self._loss_at_the_end()
        if self._control is not None:
            self._control.raise_if_misplaced()  # a wrong place explains more than the exit status
        time.sleep(POLL_SECONDS)  # its last log lines may not be visible yet
        # A process that died before its rank called the launcher is not in `lost`. It comes first.
        lost = self._control.lost if self._control is not None else []
        first = min(dead, key=lambda each: lost.index(each.rank) if each.rank in lost else -1)
        return first.death(lost)

    def _loss_at_the_end(self) -> Loss | None:
        """Ranks that were lost although what has started them ended well, as Open MPI's mpiexec does."""
        if self._control is None or any(each.running.poll() is None for each in self._watched):
            return None
        lost = self._control.lost
        if not lost:
            return None
        self._relay(ended=True)
        return Loss(ranks=tuple(lost), how=f"{_named(lost)} died; last lines:\n{self._tails()}")

    def _relay(self, ended: bool) -> None:
        """Copy new log lines, but rarely: the logs lie on a file system that is being measured."""
        if ended or time.monotonic() - self._relayed > RELAY_SECONDS:
            for process in self._watched:
                process.relay()
            self._relayed = time.monotonic()

    def _raise_if_too_late(self) -> None:
        seconds = self._limits.timeout_seconds
        if seconds is not None and time.monotonic() - self._limits.started > seconds:
            raise LaunchError(
                f"the run took longer than its {seconds:g} s (limits.run_minutes); last lines:\n{self._tails()}"
            )
        if is_orphan(self._limits.parent):
            raise LaunchError("the workflow that started this run is gone: the run was stopped")

    def _supervise(self, control: ControlServer) -> None:
        control.raise_if_misplaced()
        self._see_all_anew(control)
        missing = control.missing
        if self._limits.stop.signal and missing:
            raise RunStopped(self._limits.stop.signal, None)
        if self._limits.stop.signal and self._asked_to_stop is None:
            log.info("told to stop by %s: a checkpoint follows", self._limits.stop.signal)
            control.ask_to_stop()
            self._asked_to_stop = time.monotonic()
        if self._asked_to_stop and time.monotonic() - self._asked_to_stop > STOP_SECONDS:
            raise LaunchError(
                f"the ranks did not stop within {STOP_SECONDS:.0f} s; last lines:\n{self._tails()}"
            )
        if missing and time.monotonic() - self._started > COME_UP_SECONDS:
            who = ", ".join(f"{seat.rank} ({seat.node})" for seat in missing[:TAIL_LINES])
            raise LaunchError(
                f"{len(missing)} ranks did not come up within {COME_UP_SECONDS:.0f} s: {who}; last lines:\n"
                f"{self._tails()}"
            )

    def _see_all_anew(self, control: ControlServer) -> None:
        """Have ranks begin that are started anew after a loss, when all have come up."""
        if self._anew_since is None:
            return
        assert self._between is not None
        patience_s = self._limits.patience_s
        if leaving := control.leaving:
            if patience_s is not None and time.monotonic() - self._anew_since > patience_s:
                self._end_here(leaving)
            return
        if self._launched is None:
            self._launched = launched_now()
            self._between.all_ended()
        if control.has_come_anew:
            self._between.choose()
            control.let_begin(self._launched)
            self._anew_since = None

    def _silence(self) -> Loss | None:
        """Ranks that hung up although the process that started them still runs, as mpiexec does before MPI is up, and
        ranks that hang."""
        if self._control is None:
            return None
        patience_s = self._limits.patience_s
        if patience_s is not None and (hanging := self._control.silent(patience_s)):
            self._relay(ended=True)
            how = f"{_named(hanging)} did not answer for {patience_s:g} s; last lines:\n{self._tails()}"
            return Loss(ranks=tuple(hanging), how=how, hangs=True)
        lost = self._control.lost
        if not lost:
            self._lost_since = None
            return None
        self._lost_since = self._lost_since or time.monotonic()
        if time.monotonic() - self._lost_since <= self._limits.grace_s:
            return None
        self._relay(ended=True)
        return Loss(ranks=tuple(lost), how=f"{_named(lost)} died; last lines:\n{self._tails()}")

    def _linger(self, control: ControlServer) -> bool:
        """Whether processes still run long after all ranks have said goodbye. This was seen with srun.

        The results are complete. Without this check the run would hang until the job's time limit.
        """
        if not control.all_parted:
            return False
        self._parted_since = self._parted_since or time.monotonic()
        # After a stop signal there is less time: the scheduler will soon kill the job, and the seal must be written.
        patience = KILL_SECONDS if self._limits.stop.signal else PART_SECONDS
        if time.monotonic() - self._parted_since < patience:
            return False
        late = [each for each in self._watched if each.running.poll() is None]
        names = ", ".join(f"{each.followers[0].path.stem} ({each.running.pid})" for each in late)
        log.warning("all ranks said goodbye %g s ago: ended what still ran, %s", patience, names)
        return True

    def _tails(self) -> str:
        return "\n".join(process.tails() for process in self._watched)


def _named(ranks: Sequence[int]) -> str:
    return " and ".join(f"rank-{rank}" for rank in ranks)


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _end(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    """End the process and everything that it started: SIGTERM first, unless `at_once`, then SIGKILL."""
    by = ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, KILL_SECONDS))
    for number, patience in by[at_once:]:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    if process.poll() is None:  # it hangs in the kernel, as on a dead file server
        log.warning("process %d does not end: it is left behind", process.pid)
