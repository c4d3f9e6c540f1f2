"""The process that strikes the ranks of a node from outside: `python -m ckptbench.failures.fault_injector`.

The rank that starts it tells it of its work in lines on standard input, and the injector writes each strike into its
journal before it comes. It ends with the rank.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.common.clock import Instant, clock, day_ns, follow
from ckptbench.common.footprint import descendants
from ckptbench.common.held_syncs import answer
from ckptbench.common.processes import living_with
from ckptbench.common.removal import make_way
from ckptbench.runs.events import Begun, Rested, Strike, Struck
from ckptbench.runs.failure import Failure, Moment
from ckptbench.runs.recorder import Recorder
from ckptbench.runs.trace import whole_events
from ckptbench.world.variables import TOKEN, rank_of

Lines = Generator[str | None, float | None, None]
"""Send it how long to wait, in seconds or None, and it gives a line, or None when the time is over."""
OVER = b"over\n"
"""What an injector says when it will strike no more, and has written all of its journal."""
TURN_S = 0.02
"""A slow victim is stopped for so long, and then runs for so long."""
GROWTH_BYTES = 2**20
"""By how much files may still grow on a full disk: less than a checkpoint, more than a trace."""
DYING_S = 60.0
"""How long a killed process may take to be gone. One that writes to a disk finishes that first."""


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
    told: Instant
    """By the rank, whose time of day the injector has too."""

    def to_json(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "journal": str(self.journal),
            "near": [str(path) for path in self.near],
            "told": str(self.told),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        failures = {int(number): Failure(**each) for number, each in content["failures"].items()}
        parsed = {
            "nodes": tuple(content["nodes"]),
            "journal": Path(content["journal"]),
            "failures": failures,
            "near": tuple(map(Path, content["near"])),
            "told": Instant.read(content["told"]),
        }
        return cls(**{**content, **parsed})


class FaultInjector:
    """Strikes as ordered. What earlier attempts have seen of the run is in the journal."""

    def __init__(self, orders: Orders, rank: int, lines: Lines) -> None:
        """`rank` is a file descriptor of the process of this rank, and `lines` what it tells."""
        self._orders = orders
        self._rank = rank
        self._began_ns: int | None = None
        """Time of day at which the first step of the run began."""
        self._due: dict[int, float] = {}
        """Monotonic times of the failures whose moment has come, by number."""
        for event in whole_events(orders.journal):
            if isinstance(event, Begun):
                self._began_ns = event.unix_ns
        self._waiting = dict(orders.failures)
        self._journal = Recorder(orders.journal)
        self._lines = lines
        self._unheard = deque[str]()
        self._syncs_fail = False
        self._is_over = False
        self._schedule()

    def run(self) -> None:
        """Strike until the rank has ended or has nothing more to tell."""
        while True:
            for number in [n for n, at in self._due.items() if at <= time.monotonic()]:
                del self._due[number]
                self._strike(number, self._orders.failures[number])
            soonest = min(self._due.values(), default=None)
            timeout = None if soonest is None else max(0.0, soonest - time.monotonic())
            if not self._unheard and not self._listen(timeout):
                break
            while self._unheard:
                self._hear(**json.loads(self._unheard.popleft()))
        if not self._has_ended(0):
            self._rest()

    def _listen(self, timeout: float | None) -> bool:
        """Wait for a line, and keep it. Returns whether the rank lives and may have more to tell."""
        try:
            line = self._lines.send(timeout)
        except StopIteration:
            self._is_over = True
            return False
        if line:
            self._unheard.append(line)
        return True

    def _rest(self) -> None:
        left = {number: self._orders.failures[number] for number in (*self._waiting, *self._due)}
        ahead = sorted(number for number, each in left.items() if each.second is not None)
        missed = sorted(left.keys() - ahead)
        self._journal.write(Rested(ahead=ahead, missed=missed, monotonic_ns=clock()))

    def _hear(self, moment: Moment, step: int | None, at_ns: int, stage: str | None = None) -> None:
        """The rank has come to this moment of its work, at `at_ns` of the monotonic clock."""
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
                pids=victims,
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
                        make_way(folder)  # nobody finds what cannot be removed
            case "hang":
                _send(victims, signal.SIGSTOP)
                self._wait(failure.lasts_s)
                _send(victims, signal.SIGCONT)
            case "full_disk":
                self._fill(victims, failure.lasts_s)
            case "io_error":
                self._syncs_fail = True
                self._wait(failure.lasts_s)
                self._syncs_fail = False
            case "slow":
                end = time.monotonic() + failure.lasts_s
                while time.monotonic() < end and not self._is_over:
                    _send(victims, signal.SIGSTOP)
                    self._wait(TURN_S)
                    _send(victims, signal.SIGCONT)
                    self._wait(TURN_S)
        over_ns = clock()
        self._journal.write(Struck(failure=number, monotonic_ns=over_ns, unix_ns=day_ns(over_ns)))

    def fails(self, path: Path) -> bool:
        """Whether a sync of this file fails now. Those of traces, which lie in the run folder itself, never do."""
        return self._syncs_fail and path.parent != self._orders.journal.parent

    def _fill(self, victims: list[int], seconds: float) -> None:
        """Have the kernel refuse to let files of the victims and of their children grow, as where a disk is full.

        Files as long as those of the run folder, and GROWTH_BYTES more, may still be written: the trace must go on.
        """
        longest = max(path.stat().st_size for path in self._orders.journal.parent.glob("*.jsonl"))
        before = {}
        children = [child for victim in victims for child in descendants(f"/proc/{victim}")]
        for pid in {*victims, *children}:
            with suppress(ProcessLookupError):
                limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (longest + GROWTH_BYTES, limits[1]))
                before[pid] = limits
        self._wait(seconds)
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    def _victims(self, failure: Failure) -> list[int]:
        if failure.rank is not None:
            return [self._orders.pid]
        ranks = failure.victims(self._orders.nodes)
        living = living_with(TOKEN, self._orders.token)
        return sorted(pid for pid, started in living.items() if rank_of(started) in ranks)

    def _wait(self, seconds: float) -> None:
        """Return early if the rank has ended. What it tells meanwhile is kept: it must never wait for its injector."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self._listen(left):
            pass

    def _has_ended(self, timeout: float) -> bool:
        return bool(select.select([self._rank], [], [], timeout)[0])


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


def _lines(descriptor: int, rank: int) -> Lines:
    """Lines from `descriptor`, until it ends or the process behind the descriptor `rank` has."""
    unread = b""
    timeout = yield None
    while True:
        line, separator, rest = unread.partition(b"\n")
        if separator:
            unread = rest
            timeout = yield line.decode()
            continue
        ready, _, _ = select.select([descriptor, rank], [], [], timeout)
        if not ready:
            timeout = yield None
        elif descriptor in ready and (some := os.read(descriptor, 65536)):
            unread += some
        else:
            return


def _say(line: bytes) -> None:
    with suppress(BrokenPipeError):  # the rank has ended
        os.write(sys.stdout.fileno(), line)


def main() -> None:
    try:
        rank = os.pidfd_open(int(sys.argv[1]))
    except ProcessLookupError:  # the rank ended while this process started
        return
    lines = _lines(sys.stdin.fileno(), rank)
    try:
        next(lines)
        orders = Orders.from_json(json.loads(lines.send(None) or ""))
    except StopIteration:
        return
    follow(orders.told)
    injector = FaultInjector(orders, rank, lines)
    if len(sys.argv) > 2:  # the rank holds its syncs, and this process answers them
        _, (syncs,), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[2])), 1, 1)
        threading.Thread(target=answer, args=(syncs, injector.fails), daemon=True).start()
    _say(b"ready\n")
    injector.run()
    _say(OVER)
    if len(sys.argv) > 2:  # the last saves may be written yet
        select.select([rank], [], [])


if __name__ == "__main__":
    main()
