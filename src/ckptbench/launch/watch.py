"""Starts the processes of a run and watches them until all have ended, one has died or a limit is reached."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ckptbench.errors import LaunchError, RunStopped
from ckptbench.launch.starters import Process
from ckptbench.launch.stopping import StopRequest
from ckptbench.recovery.contract import GiveUp, GoOn, Loss, Relaunch, Verdict
from ckptbench.world.control import ControlServer
from ckptbench.world.processes import die_with_parent, ignore_stop_signals, is_orphan
from ckptbench.world.variables import RANK

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
    parent: int = field(default_factory=os.getppid)
    """Id of the process that started the launcher. When that process is gone, the run is ended."""


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
) -> Relaunch | None:
    """Start all processes and wait until all have ended. Returns None if all have ended well.

    As soon as one ends badly, `after` decides: the others go on and are watched, or all are ended. Returns its
    Relaunch if it wants the ranks started again. Raises LaunchError if it gives up.
    """
    with ExitStack() as stack:
        watched = []
        for process in processes:
            followers = [LogFollower.from_now(path) for path in process.logs]
            running = _start(process, environment)
            stack.callback(_end, running)
            rank = int(process.variables[RANK] or 0) if process.is_rank else None
            watched.append(_Watched(running, followers, rank))
        if control is not None:
            # This runs before the processes are ended: ranks that see the line closed end by themselves.
            stack.callback(control.close)
            control.serve()
        return _Watch(watched, limits, control, after).until_all_have_ended()


def _start(process: Process, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, so that everything that it starts can be ended with it."""
    variables = {**environment, **process.variables}
    launcher = os.getpid()

    def prepare() -> None:
        die_with_parent(launcher)
        if process.is_rank:  # from the beginning, as a scheduler may signal every process of a job
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
                preexec_fn=prepare,  # noqa: PLW1509 (this process has one thread)
            )
    except OSError as error:
        raise LaunchError(
            f"{process.command[0]} cannot be started ({error.strerror}): if its environment is broken, remove the "
            "environment's folder and run the study again, which makes it anew"
        ) from error


@dataclass(slots=True)
class _Watched:
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

    def death(self) -> Loss:
        """The loss that this process is. Call it when the process has ended badly."""
        self.relay()
        who = " or ".join(follower.path.stem for follower in self.followers)
        return Loss(
            ranks=() if self.rank is None else (self.rank,),
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
    ) -> None:
        self._watched = watched
        self._after = after
        self._missed: set[int] = set()
        """Lost ranks without which the survivors go on."""
        self._limits = limits
        self._control = control
        self._started = time.monotonic()
        self._relayed = 0.0
        self._asked_to_stop: float | None = None
        self._lost_since: float | None = None
        self._parted_since: float | None = None

    def until_all_have_ended(self) -> Relaunch | None:
        while True:
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
        # A run that was told to stop is not started again.
        verdict = give_up(loss) if self._limits.stop.signal else self._after(loss)
        match verdict:
            case Relaunch():
                return verdict
            case GiveUp(reason=reason):
                raise LaunchError(reason)
            case GoOn():
                self._missed.update(loss.ranks)
                self._watched = [each for each in self._watched if not each.running.poll()]
                if not self._watched:
                    raise LaunchError(f"no rank is left to go on: {loss.how}")
        return None

    def _death(self) -> Loss | None:
        """The process that died first. Later ones may have died only because it was missing."""
        dead = [process for process in self._watched if process.running.poll()]
        if not dead:
            return None
        if self._control is not None:
            self._control.raise_if_misplaced()  # a wrong place explains more than the exit status
        time.sleep(POLL_SECONDS)  # its last log lines may not be visible yet
        # A process that died before its rank called the launcher is not in `lost`. It comes first.
        lost = self._control.lost if self._control is not None else []
        first = min(dead, key=lambda each: lost.index(each.rank) if each.rank in lost else -1)
        return first.death()

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

    def _silence(self) -> Loss | None:
        """Ranks that hung up although the process that started them still runs. mpiexec does so before MPI is up."""
        if self._control is None:
            return None
        lost = [rank for rank in self._control.lost if rank not in self._missed]
        if not lost:
            self._lost_since = None
            return None
        self._lost_since = self._lost_since or time.monotonic()
        if time.monotonic() - self._lost_since <= GRACE_SECONDS:  # an exit status says more
            return None
        self._relay(ended=True)
        who = " and ".join(f"rank-{rank}" for rank in lost)
        return Loss(ranks=tuple(lost), how=f"{who} died; last lines:\n{self._tails()}")

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


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started: SIGTERM first, then SIGKILL."""
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    if process.poll() is None:  # it hangs in the kernel, as on a dead file server
        log.warning("process %d does not end: it is left behind", process.pid)
