"""Starts the processes of a run and watches them: as soon as one dies, the others are ended, and it is quoted."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ckptbench import place
from ckptbench.control import ControlServer
from ckptbench.errors import LaunchError, RunStopped
from ckptbench.starters import Process
from ckptbench.stopping import StopRequest

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0
KILL_SECONDS = 10.0
RELAY_SECONDS = 1.0
COME_UP_SECONDS = 300.0
STOP_SECONDS = 600.0
PART_SECONDS = 60.0
"""How long processes may take to end when every rank has said goodbye."""
TAIL_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end a run that does not end by itself: one object for all attempts at it."""

    timeout_seconds: float | None = None
    stop: StopRequest = field(default_factory=StopRequest)
    started: float = field(default_factory=time.monotonic)
    """When the run, and with it the count of its seconds, began."""
    parent: int = field(default_factory=os.getppid)
    """The process that wants the run: without it, it ends."""


@dataclass(slots=True)
class LogFollower:
    """Hands on the lines that a rank has added to its log since the last look."""

    path: Path
    tail: list[str] = field(default_factory=list)
    """The last lines seen."""
    _position: int = 0

    @classmethod
    def from_now(cls, path: Path) -> Self:
        """Leaves out what an earlier attempt has written."""
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


def run_processes(
    processes: list[Process],
    environment: dict[str, str],
    limits: Limits,
    control: ControlServer | None = None,
) -> None:
    """Start them all and wait until all have ended well; as soon as one does not, end the others and raise."""
    with ExitStack() as stack:
        watched = []
        for process in processes:
            followers = [LogFollower.from_now(path) for path in process.logs]
            running = _start(process, environment)
            stack.callback(_end, running)
            rank = int(process.variables[place.RANK] or 0) if process.is_rank else None
            watched.append(_Watched(running, followers, rank))
        if control is not None:
            # Before the processes are ended: ranks that hear it end by themselves.
            stack.callback(control.close)
            control.serve()
        _Watch(watched, limits, control).until_all_have_ended()


def _start(process: Process, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that all it starts can be ended with it."""
    variables = {**environment, **process.variables}
    launcher = os.getpid()

    def prepare() -> None:
        place.die_with_parent(launcher)
        if process.is_rank:  # from its first moment: a scheduler may signal every process of a job
            place.ignore_stop_signals()

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
    """None: it is what starts ranks."""

    def relay(self) -> None:
        for follower in self.followers:
            for line in follower.new_lines():
                log.info("[%s] %s", follower.path.stem, line)

    def tails(self) -> str:
        lines = [f"    [{f.path.stem}] {line}" for f in self.followers for line in f.tail]
        return (
            "\n".join(lines) or f"    (nothing in {', '.join(str(f.path) for f in self.followers)})"
        )

    def death(self) -> LaunchError:
        """How it ended, which it has not done well."""
        self.relay()
        who = " or ".join(follower.path.stem for follower in self.followers)
        return LaunchError(f"{who} {_how(self.running.returncode)}; last lines:\n{self.tails()}")


class _Watch:
    """Looks after the processes of one run, five times a second."""

    def __init__(
        self, watched: list[_Watched], limits: Limits, control: ControlServer | None
    ) -> None:
        self._watched = watched
        self._limits = limits
        self._control = control
        self._started = time.monotonic()
        self._relayed = 0.0
        self._asked_to_stop: float | None = None
        self._lost_since: float | None = None
        self._parted_since: float | None = None

    def until_all_have_ended(self) -> None:
        while True:
            ended = all(process.running.poll() is not None for process in self._watched)
            self._relay(ended)
            self._raise_if_dead()
            if ended or (self._control is not None and self._linger(self._control)):
                return
            if self._parted_since is None:
                self._raise_if_too_late()
            if self._control is not None:
                self._supervise(self._control)
            time.sleep(POLL_SECONDS)

    def _raise_if_dead(self) -> None:
        """Quotes the one that died first: others may only have missed it."""
        dead = [process for process in self._watched if process.running.poll()]
        if not dead:
            return
        if self._control is not None:
            self._control.raise_if_misplaced()  # why it ended, rather than that it did
        time.sleep(POLL_SECONDS)  # what it said last may still be on its way
        # Whoever died before it could call the launcher is not among them: nothing was there to be missed.
        lost = self._control.lost if self._control is not None else []
        raise min(dead, key=lambda each: lost.index(each.rank) if each.rank in lost else -1).death()

    def _relay(self, ended: bool) -> None:
        """Not at every look: the logs lie on a file system that is being measured."""
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
        if os.getppid() != self._limits.parent:
            raise LaunchError("the workflow that started this run is gone: the run was stopped")

    def _supervise(self, control: ControlServer) -> None:
        control.raise_if_misplaced()
        self._raise_if_lost(control.lost)
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

    def _raise_if_lost(self, lost: list[int]) -> None:
        """What started the ranks may wait for the others when one has died, as mpiexec does before MPI is up."""
        if not lost:
            return
        self._lost_since = self._lost_since or time.monotonic()
        if time.monotonic() - self._lost_since > GRACE_SECONDS:  # else its exit status says more
            self._relay(ended=True)
            who = " and ".join(f"rank-{rank}" for rank in lost)
            raise LaunchError(f"{who} died; last lines:\n{self._tails()}")

    def _linger(self, control: ControlServer) -> bool:
        """Whether processes do not end although their ranks are through, as was seen with srun.

        The results are whole, and nobody else would notice until the job's time limit.
        """
        if not control.all_parted:
            return False
        self._parted_since = self._parted_since or time.monotonic()
        # A scheduler that told the run to stop waits for its seal.
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
    """End the process and all it started: asked first, then killed."""
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    if process.poll() is None:  # it hangs in the kernel, as on a file server that does not answer
        log.warning("process %d does not end: it is left behind", process.pid)
