"""Starts the ranks of one run on what was allocated and watches them: a rank that dies ends the run at once."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ckptbench import place
from ckptbench.allocation import Allocation, Seat, ranks_a_node
from ckptbench.control import ControlServer
from ckptbench.errors import LaunchError, RunStopped
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.plan import Plan
from ckptbench.preflight import usable_cores
from ckptbench.recorder import boot_id, clock
from ckptbench.starters import Process, rank_processes
from ckptbench.stopping import StopRequest

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
GRACE_SECONDS = 3.0
COME_UP_SECONDS = 300.0
TAIL_LINES = 12
SOURCE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every rank of a run executes."""

    command: list[str]
    logs: Path
    """The folder of `rank-<rank>.log`."""
    mpiexec: Path | None = None
    """What starts ranks that speak MPI; None: they do not."""
    libraries: tuple[str, ...] = ()
    """Folders for the loader's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end a run that does not end by itself."""

    timeout_seconds: float | None = None
    stop: StopRequest = field(default_factory=StopRequest)


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


def launch(plan: Plan, allocation: Allocation, *, python: Path, logs: Path, limits: Limits) -> None:
    """Run every rank of `plan` on `allocation` with the interpreter `python` until all have ended well.

    Raises LaunchError with the last log lines of the rank that died first, after ending the others; also when
    the run takes longer than `limits` or the workflow that started this process is gone. Raises RunStopped where the
    ranks stopped as they were asked to.
    """
    # MPI comes with the framework's environment, so that its library and its launcher agree.
    speaks_mpi = FRAMEWORKS[plan.cell.framework].launcher == "mpiexec"
    program = Program(
        command=[str(python), "-m", "ckptbench.train", str(plan.write())],
        logs=logs,
        mpiexec=python.parent / "mpiexec" if speaks_mpi else None,
        libraries=_cuda_libraries(python) if plan.cell.accelerator == "cuda" else (),
    )
    ranks_here = ranks_a_node(allocation.seats(plan.cell.ranks))
    if plan.cell.accelerator == "cpu" and ranks_here > usable_cores():
        log.warning("%d ranks share %d cores: their times say little", ranks_here, usable_cores())
    run_ranks(program, plan.cell.ranks, allocation, limits)


def run_ranks(
    program: Program,
    ranks: int,
    allocation: Allocation,
    limits: Limits,
    *,
    threads: int | None = None,
) -> None:
    """Start the program in so many ranks, and see that all come up where they should and end well.

    Each computes with `threads`; None: with its share of the cores of its node, taken to be like this one.
    """
    seats = allocation.seats(ranks)
    program.logs.mkdir(parents=True, exist_ok=True)
    control = ControlServer(seats, host=_own_host(allocation, seats))
    variables = _variables(program, seats, control, threads)
    processes = rank_processes(
        program.command,
        allocation,
        seats,
        mpiexec=program.mpiexec,
        variables=variables,
        logs=program.logs,
    )
    run_processes(processes, {**os.environ, **variables}, limits, control)
    if control.stopped_at is not None:
        raise RunStopped(limits.stop.signal or "a request", control.stopped_at)


def run_processes(
    processes: list[Process],
    environment: dict[str, str],
    limits: Limits,
    control: ControlServer | None = None,
) -> None:
    """Start them all and wait until all have ended well; as soon as one does not, end the others and raise."""
    for path in (path for process in processes for path in process.logs):
        path.unlink(missing_ok=True)
    with ExitStack() as stack:
        watched = []
        for process in processes:
            running = _start(process, environment)
            stack.callback(_end, running)
            watched.append(_Watched(running, [LogFollower(path) for path in process.logs]))
        if control is not None:
            stack.callback(
                control.close
            )  # before they are ended: ranks that hear it end themselves
            control.serve()
        _Watch(watched, limits, control).until_all_have_ended()


def _own_host(allocation: Allocation, seats: Sequence[Seat]) -> str:
    """By what name the ranks reach this process."""
    if given := os.environ.get("CKPTBENCH_LAUNCHER_HOST"):
        return given
    alone = all(seat.node == allocation.here for seat in seats)
    return "127.0.0.1" if alone else socket.gethostname()


def _variables(
    program: Program, seats: Sequence[Seat], control: ControlServer, threads: int | None
) -> dict[str, str]:
    shared = place.rank_environment(
        seats,
        threads=threads or max(1, usable_cores() // ranks_a_node(seats)),
        control=control.address,
        token=control.token,
        logs=str(program.logs),
        launched=f"{boot_id()} {clock()} {time.time_ns()}",
    )
    if program.libraries:
        shared["LD_LIBRARY_PATH"] = os.pathsep.join(program.libraries)
    return {**shared, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def _cuda_libraries(python: Path) -> tuple[str, ...]:
    """Where NVIDIA's wheels lay their libraries: CuPy finds cuDNN on the loader's path alone."""
    wheels = python.parents[1].glob("lib/python3*/site-packages/nvidia/*/lib")
    return (*map(str, sorted(wheels)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")]))


def _start(process: Process, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that all it starts can be ended with it."""
    variables = {**environment, **process.variables}
    try:
        with process.logs[0].open("ab") as output:
            return subprocess.Popen(
                process.command,
                env={name: value for name, value in variables.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=place.die_with_parent,  # noqa: PLW1509 (this process has one thread)
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


class _Watch:
    """Looks after the processes of one run, five times a second."""

    def __init__(
        self, watched: list[_Watched], limits: Limits, control: ControlServer | None
    ) -> None:
        self._watched = watched
        self._limits = limits
        self._control = control
        self._parent = os.getppid()
        self._started = time.monotonic()
        self._asked_to_stop = False

    def until_all_have_ended(self) -> None:
        while True:
            ended = all(process.running.poll() is not None for process in self._watched)
            for process in self._watched:
                process.relay()
                process.raise_if_dead()
            if ended:
                return
            self._raise_if_too_late()
            if self._control is not None:
                self._supervise(self._control)
            time.sleep(POLL_SECONDS)

    def _raise_if_too_late(self) -> None:
        seconds = self._limits.timeout_seconds
        if seconds is not None and time.monotonic() - self._started > seconds:
            raise LaunchError(
                f"the run took longer than its {seconds:g} s (limits.run_minutes); last lines:\n{self._tails()}"
            )
        if os.getppid() != self._parent:
            raise LaunchError("the workflow that started this run is gone: the run was stopped")

    def _supervise(self, control: ControlServer) -> None:
        control.raise_if_misplaced()
        missing = control.missing
        if self._limits.stop.signal and missing:
            raise RunStopped(self._limits.stop.signal, None)
        if self._limits.stop.signal and not self._asked_to_stop:
            log.info("told to stop by %s: a checkpoint follows", self._limits.stop.signal)
            control.ask_to_stop()
            self._asked_to_stop = True
        if missing and time.monotonic() - self._started > COME_UP_SECONDS:
            who = ", ".join(f"{seat.rank} ({seat.node})" for seat in missing[:TAIL_LINES])
            raise LaunchError(
                f"{len(missing)} ranks did not come up within {COME_UP_SECONDS:.0f} s: {who}; last lines:\n"
                f"{self._tails()}"
            )

    def _tails(self) -> str:
        return "\n".join(process.tails() for process in self._watched)


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
