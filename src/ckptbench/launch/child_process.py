"""The processes of one attempt at a run: starts them, copies their logs, says how they have ended, and ends them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ckptbench.common.errors import LaunchError
from ckptbench.common.files import open_regular
from ckptbench.common.memory_kills import MemoryKills, ended
from ckptbench.common.processes import die_with_parent, ignore_stop_signals, living_with
from ckptbench.common.remedies import blame, free, is_full
from ckptbench.common.removal import remove_or_warn
from ckptbench.launch.starters import Process
from ckptbench.run.control.variables import RANK, TOKEN, rank_of

log = logging.getLogger(__name__)

GRACE_SECONDS = 3.0
KILL_SECONDS = 10.0
RELAY_SECONDS = 1.0
TAIL_LINES = 12


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
        try:
            descriptor = open_regular(self.path)
        except FileNotFoundError:
            return []
        with open(descriptor, "rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        self.tail = [*self.tail, *lines][-TAIL_LINES:]
        return lines


@dataclass(slots=True)
class ChildProcess:
    """A process that was started, and its logs."""

    process: Process
    running: subprocess.Popen[bytes]
    followers: list[LogFollower]
    rank: int | None
    """None: the process starts ranks and is none itself."""
    kills: MemoryKills = field(default_factory=MemoryKills.now)
    """Those before it was started."""
    _is_ended: bool = False

    @classmethod
    def start(
        cls, process: Process, environment: dict[str, str], *, has_threads: bool = False
    ) -> Self:
        """Start the process. Pass `has_threads` where this process has more than one thread. Raises LaunchError."""
        followers = [LogFollower.from_now(path) for path in process.logs]
        rank = int(process.variables[RANK] or 0) if process.is_rank else None
        kills = MemoryKills.now()
        running = _start(process, environment, has_threads=has_threads)
        return cls(process, running, followers, rank, kills)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended, well or badly."""
        return self.running.poll() is not None

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended badly."""
        return bool(self.running.poll())

    @property
    def who(self) -> str:
        """The ranks that it is or starts, by their logs."""
        return " or ".join(follower.path.stem for follower in self.followers)

    @property
    def how(self) -> str:
        """How the process has ended. Call it when it has."""
        return ended(self.running.returncode, self.kills)

    def relay(self) -> None:
        for follower in self.followers:
            for line in follower.new_lines():
                log.info("[%s] %s", follower.path.stem, line)

    def tails(self) -> str:
        """The last lines of its logs. Where they have none, because their file system is full, it says that instead."""
        lines = [f"    [{f.path.stem}] {line}" for f in self.followers for line in f.tail]
        if lines:
            return "\n".join(lines)
        logs = [follower.path for follower in self.followers]
        full = next((f": {free(path)}, so free some" for path in logs if is_full(path)), "")
        return f"    (nothing in {', '.join(map(str, logs))}{full})"

    def end(self, *, at_once: bool = False) -> None:
        """End the process and everything that it started: SIGTERM first, unless `at_once`, then SIGKILL."""
        if self._is_ended:
            return  # its number may be that of another process by now
        self._is_ended = True
        _take_back(self.process)
        by = ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, KILL_SECONDS))
        for number, patience in by[at_once:]:
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.running.wait(patience)
        if self.running.poll() is None:  # it hangs in the kernel, as on a dead file server
            log.warning("process %d does not end: it is left behind", self.running.pid)


class Group:
    """The processes that are watched together. Those without which the others go on are taken out of it."""

    def __init__(self, members: list[ChildProcess]) -> None:
        self._members = members
        self._relayed = 0.0

    def __iter__(self) -> Iterator[ChildProcess]:
        return iter(list(self._members))

    def __bool__(self) -> bool:
        return bool(self._members)

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return all(each.is_over for each in self._members)

    @property
    def dead(self) -> list[ChildProcess]:
        """Those that have ended badly."""
        return [each for each in self._members if each.is_dead]

    @property
    def memory_kills(self) -> str:
        """The kernel's kills for lack of memory since the first of them was started, in words; empty if there were none."""
        now = MemoryKills.now()
        return next((said for each in self._members if (said := now.since(each.kills))), "")

    def add(self, watched: ChildProcess) -> None:
        self._members.append(watched)

    def take_out(self, gone: Sequence[ChildProcess]) -> None:
        self._members = [each for each in self._members if each not in gone]

    def relay(self) -> None:
        """Copy new log lines."""
        for each in self._members:
            each.relay()
        self._relayed = time.monotonic()

    def relay_rarely(self) -> None:
        """Copy new log lines, but rarely: the logs lie on a file system that is being measured."""
        if time.monotonic() - self._relayed > RELAY_SECONDS:
            self.relay()

    def tails(self) -> str:
        return "\n".join(each.tails() for each in self._members)


def kill_ranks_here(ranks: Sequence[int], token: str) -> bool:
    """Kill ranks of the run that `token` marks, and say whether all of them run on this host: on others nobody is there to do it.

    Unless all of them do, none is killed.
    """
    living = living_with(TOKEN, token)
    of_rank = {pid: rank_of(started) for pid, started in living.items()}
    if not {*of_rank.values()} >= {*ranks}:
        return False
    for pid, rank in of_rank.items():
        if rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return True


def _start(
    process: Process, environment: dict[str, str], *, has_threads: bool
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
        if process.handed:
            process.handed.write()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = os.fdopen(open_regular(process.logs[0], flags), "ab")
    except OSError as error:
        path = Path(error.filename or process.logs[0])
        raise LaunchError(f"{path} cannot be written: {blame(error, path)}") from error
    try:
        with output:
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
        _take_back(process)
        again = "if its environment is broken, remove the environment's folder and run the study again, which makes it again"
        raise LaunchError(
            f"{process.command[0]} cannot be started: {blame(error, process.command[0], again, reading=True)}"
        ) from error


def _take_back(process: Process) -> None:
    """Remove the file of its environment where it has not come so far as to do so itself."""
    if process.handed:
        remove_or_warn(process.handed.path)
