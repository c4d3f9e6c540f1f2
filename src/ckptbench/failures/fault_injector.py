"""The process that strikes the ranks of a node from outside: `python -m ckptbench.failures.fault_injector`.

The rank that starts it sends it `Orders`, and then reports its progress. The injector writes each strike into its journal
before it comes. It ends with the rank.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple, cast

from ckptbench.common.clock import clock, day_ns
from ckptbench.common.processes import living_with
from ckptbench.common.removal import try_to_remove
from ckptbench.run.control.variables import TOKEN, rank_of
from ckptbench.run.events import Begun, Strike, Struck, Unfired
from ckptbench.run.failure import Failure, Moment
from ckptbench.run.recorder import Recorder

READY, OVER = "ready", "over"
"""What an injector says when it can strike, and when it will strike no more and has written all of its journal. A rank says
OVER when it has nothing more to report."""
DYING_S = 60.0
"""How long a killed process may take to be gone. One that writes to a disk finishes that first."""


class Progress(NamedTuple):
    """The rank has come to this moment of its work, at `at_ns` of the monotonic clock."""

    moment: Moment
    step: int | None
    at_ns: int
    stage: str | None = None


Listen = Callable[[float | None], Progress | None]
"""Waits so many seconds, or for ever, for what the rank reports; None when the time is over. Raises EOFError when no more will come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What an injector is told at its start."""

    pid: int
    nodes: tuple[str, ...]
    """The node of every rank of the run, by rank."""
    attempt: int
    journal: Path
    failures: dict[int, Failure]
    """Those that are still to strike and whose (first) victim is this rank, each with its number in the trace of failures."""
    token: str
    """Marks the processes of this run."""
    near: tuple[Path, ...]
    """Folders that are lost with the node."""


def _began_ns(journal: Path) -> int | None:
    """Time of day at which the first step of the run began, if an earlier attempt has seen it."""
    if not journal.exists():
        return None
    from ckptbench.run.trace import whole_events  # with NumPy, which doubles the time to start

    began = [event.unix_ns for event in whole_events(journal) if isinstance(event, Begun)]
    return began[-1] if began else None


class FaultInjector:
    """Strikes as ordered. What earlier attempts have seen of the run is in the journal."""

    def __init__(self, orders: Orders, listen: Listen) -> None:
        self._orders = orders
        self._began_ns = _began_ns(orders.journal)
        self._due: dict[int, float] = {}
        """Monotonic times of the failures whose moment has come, by number."""
        self._waiting = dict(orders.failures)
        self._journal = Recorder(orders.journal)
        self._listen = listen
        self._unheard = deque[Progress]()
        self._is_over = False
        self._schedule()

    def run(self) -> None:
        """Strike until the rank has ended or has nothing more to report."""
        while True:
            for number in [n for n, at in self._due.items() if at <= time.monotonic()]:
                del self._due[number]
                self._strike(number, self._orders.failures[number])
            soonest = min(self._due.values(), default=None)
            timeout = None if soonest is None else max(0.0, soonest - time.monotonic())
            if not self._unheard and not self._keep_progress(timeout):
                break
            while self._unheard:
                self._hear(self._unheard.popleft())

    def record_unfired(self) -> None:
        """Write down what has not struck."""
        left = {number: self._orders.failures[number] for number in (*self._waiting, *self._due)}
        ahead = sorted(number for number, each in left.items() if each.second is not None)
        missed = sorted(left.keys() - ahead)
        self._journal.write(Unfired(ahead=ahead, missed=missed, monotonic_ns=clock()))

    def _keep_progress(self, timeout: float | None) -> bool:
        """Wait for what the rank reports next, and keep it. Returns whether the rank lives and may have more to report."""
        if self._is_over:
            return False
        try:
            progress = self._listen(timeout)
        except EOFError:
            self._is_over = True
            return False
        if progress is not None:
            self._unheard.append(progress)
        return True

    def _hear(self, progress: Progress) -> None:
        moment, step, at_ns, stage = progress
        if moment == "step" and self._began_ns is None:
            self._began_ns = day_ns(at_ns)
            self._journal.write(Begun(monotonic_ns=at_ns, unix_ns=self._began_ns))
            self._schedule()
        for number, failure in list(self._waiting.items()):
            if failure.waits_for(moment, step, stage):
                self._take(number, at_ns / 1e9 + failure.delay_s)
                if moment == "recovery":
                    break  # the next one waits for the next recovery

    def _schedule(self) -> None:
        """Set the times of the failures that strike at a second of the run."""
        if self._began_ns is None:
            return
        since_s = (day_ns() - self._began_ns) / 1e9
        for number, failure in list(self._waiting.items()):
            if failure.second is not None:
                self._take(number, time.monotonic() + failure.second + failure.delay_s - since_s)

    def _take(self, number: int, at: float) -> None:
        del self._waiting[number]
        self._due[number] = at

    def _strike(self, number: int, failure: Failure) -> None:
        victims = self._victims(failure)
        self._journal.write(
            Strike(
                failure=number,
                kind=failure.kind,
                attempt=self._orders.attempt,
                monotonic_ns=(at_ns := clock()),
                unix_ns=day_ns(at_ns),
            )
        )
        self._journal.sync()  # the launcher reads it, perhaps on another node
        match failure.kind:
            case "kill" | "damage":
                _send(victims, signal.SIGKILL)
                _await_end(victims)
                if failure.node is not None:
                    for folder in self._orders.near:
                        if error := try_to_remove(folder):
                            raise error
            case "hang":
                _send(victims, signal.SIGSTOP)
                self._wait(failure.lasts_s)
                _send(victims, signal.SIGCONT)
        over_ns = clock()
        self._journal.write(Struck(failure=number, monotonic_ns=over_ns, unix_ns=day_ns(over_ns)))

    def _victims(self, failure: Failure) -> list[int]:
        if failure.rank is not None:
            return [self._orders.pid]
        ranks = failure.victims(self._orders.nodes)
        living = living_with(TOKEN, self._orders.token)
        return sorted(pid for pid, started in living.items() if rank_of(started) in ranks)

    def _wait(self, seconds: float) -> None:
        """Return early if the rank has ended. What it reports meanwhile is kept: it must never wait for its injector."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self._keep_progress(left):
            pass


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _await_end(pids: Iterable[int]) -> None:
    """Wait until the processes have ended. Raises TimeoutError if one has not after DYING_S."""
    for pid in pids:
        with suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            try:
                if not select.select([process], [], [], DYING_S)[0]:
                    raise TimeoutError(f"process {pid} still runs {DYING_S:g} s after SIGKILL")
            finally:
                os.close(process)


def main() -> None:
    """The arguments are the process of the rank, and the descriptor of the connection to it."""
    connection = Connection(int(sys.argv[2]))
    try:
        rank = os.pidfd_open(int(sys.argv[1]))
        orders: Orders = connection.recv()
    except (ProcessLookupError, EOFError):  # the rank has ended while this process started
        return

    def listen(timeout: float | None) -> Progress | None:
        ready = wait([connection, rank], timeout)
        if not ready:
            return None
        # Processes that the rank has forked may hold the other end, too: it need not be closed when the rank has ended.
        progress = connection.recv() if connection in ready else OVER
        if progress == OVER:
            raise EOFError
        return cast(Progress, progress)

    injector = FaultInjector(orders, listen)
    with suppress(BrokenPipeError):  # the rank has ended
        connection.send(READY)
        injector.run()
        if not wait([rank], 0):
            injector.record_unfired()
        connection.send(OVER)


if __name__ == "__main__":
    main()
