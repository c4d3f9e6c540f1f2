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


@dataclass(frozen=True, slots=True)
class Process:
    """A command to start, the variables of its own, and the logs that it or its children write."""

    command: list[str]
    variables: dict[str, str]
    logs: list[Path]


def launch(plan: Plan, *, python: Path, logs: Path, timeout_seconds: float | None = None) -> None:
    """Run every rank of `plan` with the interpreter `python` until all have ended well.

    Raises LaunchError with the last log lines of the rank that died first, after ending the others; also when
    the run takes longer than `timeout_seconds` or the workflow that started this process is gone.
    """
    logs.mkdir(parents=True, exist_ok=True)
    processes = _processes(plan, python, plan.write(), logs)
    run_processes(processes, _environment(plan, python, logs), timeout_seconds=timeout_seconds)


def run_processes(
    processes: list[Process], environment: dict[str, str], *, timeout_seconds: float | None = None
) -> None:
    """Start them all and wait until all have ended well; as soon as one does not, end the others and raise."""
    for path in (path for process in processes for path in process.logs):
        path.unlink(missing_ok=True)
    with ExitStack() as stack:
        watched = []
        for process in processes:
            running = _start(process.command, {**environment, **process.variables})
            stack.callback(_end, running)
            watched.append(_Watched(running, [LogFollower(path) for path in process.logs]))
        _watch(watched, timeout_seconds)


def _processes(plan: Plan, python: Path, plan_path: Path, logs: Path) -> list[Process]:
    command = [str(python), "-m", "ckptbench.train", str(plan_path)]
    paths = [logs / f"rank-{rank}.log" for rank in range(plan.cell.ranks)]
    if plan.cell.ranks > 1 and FRAMEWORKS[plan.cell.framework].launcher == "mpiexec":
        # MPI comes with the framework's environment, so that its library and its launcher agree.
        mpiexec = str(python.parent / "mpiexec")
        return [Process([mpiexec, "-n", str(plan.cell.ranks), *command], {}, paths)]
    return [Process(command, {place.RANK: str(rank)}, [path]) for rank, path in enumerate(paths)]


def _environment(plan: Plan, python: Path, logs: Path) -> dict[str, str]:
    ranks, cores = plan.cell.ranks, usable_cores()
    if ranks > cores and plan.cell.accelerator == "cpu":
        log.warning("%d ranks share %d cores: their times say little", ranks, cores)
    shared = place.rank_environment(
        ranks=ranks,
        threads=max(1, cores // ranks),
        addresses=free_addresses(ranks),
        logs=str(logs),
        launched_ns=clock(),
    )
    if plan.cell.accelerator == "cuda":
        shared["LD_LIBRARY_PATH"] = os.pathsep.join(_cuda_libraries(python))
    return {**os.environ, **shared, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def _cuda_libraries(python: Path) -> list[str]:
    """Where NVIDIA's wheels lay their libraries: CuPy finds cuDNN on the loader's path alone."""
    wheels = python.parents[1].glob("lib/python3*/site-packages/nvidia/*/lib")
    return [*map(str, sorted(wheels)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]


def free_addresses(count: int) -> tuple[str, ...]:
    """Addresses on this host that were free a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return tuple(f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets)


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that all it starts can be ended with it."""
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            start_new_session=True,
            preexec_fn=place.die_with_parent,  # noqa: PLW1509 (this process has one thread)
        )
    except OSError as error:
        raise LaunchError(
            f"{command[0]} cannot be started ({error.strerror}): if its environment is broken, remove the "
            "environment's folder and run the study again, which makes it anew"
        ) from error


@dataclass(slots=True)
class _Watched:
    running: subprocess.Popen[bytes]
    followers: list[LogFollower]

    def relay(self) -> None:
        for follower in self.followers:
            for line in follower.new_lines():
                log.info("[%s] %s", follower.path.stem, line)

    def tails(self) -> str:
        lines = [f"    [{f.path.stem}] {line}" for f in self.followers for line in f.tail]
        return (
            "\n".join(lines) or f"    (nothing in {', '.join(str(f.path) for f in self.followers)})"
        )

    def raise_if_dead(self) -> None:
        if code := self.running.poll():
            time.sleep(POLL_SECONDS)  # what it said last may still be on its way
            self.relay()
            who = " or ".join(follower.path.stem for follower in self.followers)
            raise LaunchError(f"{who} {_how(code)}; last lines:\n{self.tails()}")


def _watch(watched: list[_Watched], timeout_seconds: float | None) -> None:
    parent, deadline = os.getppid(), time.monotonic() + (timeout_seconds or float("inf"))
    while True:
        ended = all(process.running.poll() is not None for process in watched)
        for process in watched:
            process.relay()
            process.raise_if_dead()
        if ended:
            return
        if time.monotonic() > deadline:
            tails = "\n".join(process.tails() for process in watched)
            raise LaunchError(
                f"the run took longer than its {timeout_seconds:g} s (limits.run_minutes); last lines:\n{tails}"
            )
        if os.getppid() != parent:
            raise LaunchError("the workflow that started this run is gone: the run was stopped")
        time.sleep(POLL_SECONDS)


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


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
