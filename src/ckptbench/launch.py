"""Starts the ranks of one run on this machine and watches them: a rank that dies ends the run at once."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ckptbench import place
from ckptbench.errors import LaunchError
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.plan import Plan
from ckptbench.preflight import usable_cores
from ckptbench.recorder import clock

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0
TAIL_LINES = 12
SOURCE = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class LogFollower:
    """Hands on the lines that a rank has added to its log since the last look."""

    path: Path
    tail: list[str] = field(default_factory=list)
    """The last lines seen."""
    _position: int = 0

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


def launch(plan: Plan, *, python: Path, logs: Path, timeout_seconds: float | None = None) -> None:
    """Run every rank of `plan` with the interpreter `python` until all have ended well.

    Raises LaunchError with the last log lines of the rank that died first, after ending the others; also when
    the run takes longer than `timeout_seconds` or the workflow that started this process is gone.
    """
    logs.mkdir(parents=True, exist_ok=True)
    plan_path = plan.write()
    environment = _environment(plan, logs)
    followers = [LogFollower(logs / f"rank-{rank}.log") for rank in range(plan.cell.ranks)]
    for follower in followers:
        follower.path.unlink(missing_ok=True)
    with ExitStack() as stack:
        processes = []
        for command, extra in _commands(plan, python, plan_path):
            process = _start(command, {**environment, **extra})
            stack.callback(_end, process)
            processes.append(process)
        _watch(processes, followers, timeout_seconds)


def _commands(
    plan: Plan, python: Path, plan_path: Path
) -> list[tuple[list[str], dict[str, str]]]:
    """The command and the variables of its own for each process to start."""
    rank_command = [str(python), "-m", "ckptbench.train", str(plan_path)]
    if plan.cell.ranks > 1 and FRAMEWORKS[plan.cell.framework].launcher == "mpiexec":
        # MPI comes with the framework's environment, so that its library and its launcher agree.
        mpiexec = python.parent / "mpiexec"
        return [([str(mpiexec), "-n", str(plan.cell.ranks), *rank_command], {})]
    return [(rank_command, {place.RANK: str(rank)}) for rank in range(plan.cell.ranks)]


def _environment(plan: Plan, logs: Path) -> dict[str, str]:
    ranks, cores = plan.cell.ranks, usable_cores()
    if ranks > cores and plan.cell.accelerator == "cpu":
        log.warning("%d ranks share %d cores: their times say little", ranks, cores)
    shared = place.rank_environment(
        ranks=ranks,
        threads=max(1, cores // ranks),
        addresses=_free_addresses(ranks),
        logs=str(logs),
        launched_ns=clock(),
    )
    return {**os.environ, **shared, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def _free_addresses(count: int) -> tuple[str, ...]:
    """Addresses on this host that were free a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return tuple(f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets)


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that all it starts can be ended with it."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        start_new_session=True,
        preexec_fn=place.die_with_parent,  # noqa: PLW1509 (this process has one thread)
    )


def _watch(
    processes: list[subprocess.Popen[bytes]],
    followers: list[LogFollower],
    timeout_seconds: float | None,
) -> None:
    parent = os.getppid()
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while any(process.poll() is None for process in processes):
        _relay(followers)
        _raise_for_dead(processes, followers)
        if deadline is not None and time.monotonic() > deadline:
            raise LaunchError(
                f"the run took longer than limits.run_minutes ({timeout_seconds / 60:g}); last lines:\n"  # type: ignore[operator]
                + _tails(followers)
            )
        if os.getppid() != parent:
            raise LaunchError("the workflow that started this run is gone: the run was stopped")
        time.sleep(POLL_SECONDS)
    _relay(followers)
    _raise_for_dead(processes, followers)


def _raise_for_dead(
    processes: list[subprocess.Popen[bytes]], followers: list[LogFollower]
) -> None:
    codes = [process.poll() for process in processes]
    for index, code in enumerate(codes):
        if code:
            time.sleep(POLL_SECONDS)  # what it said last may still be on its way
            _relay(followers)
            dead = followers if len(processes) < len(followers) else [followers[index]]
            who = f"rank {index}" if len(processes) == len(followers) else "a rank"
            raise LaunchError(f"{who} {_how(code)}; its last lines:\n{_tails(dead)}")


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _relay(followers: list[LogFollower]) -> None:
    for follower in followers:
        for line in follower.new_lines():
            print(f"[{follower.path.stem}] {line}", file=sys.stderr, flush=True)


def _tails(followers: list[LogFollower]) -> str:
    lines = [
        f"    [{follower.path.stem}] {line}" for follower in followers for line in follower.tail
    ]
    return "\n".join(lines) or "    (it wrote nothing)"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all it started: asked first, then killed."""
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


