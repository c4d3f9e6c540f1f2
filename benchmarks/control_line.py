"""How long the launcher takes to seat 1,024 ranks and to stop them. The promise: under 10 s, and under 2 s.

The ranks are real processes, forked from this one. Each opens its `Link`, meets the others, sleeps in place of steps,
and stops when it is told to. All ranks share the cores of this machine, whereas in a study every rank has its own. So
the measured times are upper bounds. Most of the time until all are seated is the time that this machine needs to fork.
The processor time of the launcher shows its own part. All connections use the loopback interface.

All ranks are in step k at the same time, as the averaging of gradients makes real ranks be. A stop that they have agreed
on takes effect at the end of the current step. A step lasts `--step` seconds, so stopping takes up to one step longer
than agreeing.
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ckptbench.errors import LaunchError
from ckptbench.world.control import ControlServer
from ckptbench.world.link import Link
from ckptbench.world.processes import die_with_parent
from ckptbench.world.seats import Seat, seats_of

SEATED_PROMISE_S = 10.0
STOPPED_PROMISE_S = 2.0
PATIENCE_S = 120.0
SETTLE_S = 1.0
MEGABYTE = 1e6


class Notes:
    """One number from each rank for the launcher, in shared memory."""

    def __init__(self, ranks: int) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 8 * ranks)).cast("d")

    def __setitem__(self, rank: int, number: float) -> None:
        self._numbers[rank] = number

    def all(self) -> list[float]:
        return self._numbers.tolist()


class Ranks:
    """The processes of the ranks. They end with this process, and at the latest after `PATIENCE_S`."""

    def __init__(self, seats: Sequence[Seat], server: ControlServer, step_s: float) -> None:
        self.connecting, self.seated = Notes(len(seats)), Notes(len(seats))
        self.peak_bytes = Notes(len(seats))
        self.may_end = Notes(1)
        """Not 0 when all ranks have stopped. No rank ends earlier, because its end would slow down the others."""
        self._server = server
        self._step_s = step_s
        self.pids = [self._fork(seat) for seat in seats]
        self.forked = time.monotonic()

    def _fork(self, seat: Seat) -> int:
        launcher = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.alarm(round(PATIENCE_S))
            die_with_parent(launcher)
            self._live(seat)
            code = 0
        except (LaunchError, OSError) as error:
            print(f"rank {seat.rank}: {error}", file=sys.stderr)
        finally:
            os._exit(code)

    def _live(self, seat: Seat) -> None:
        self.connecting[seat.rank] = time.monotonic()
        link = Link.open(self._server.address, self._server.token, rank=seat.rank, node=seat.node)
        link.meet(rank=seat.rank, node=seat.node, device=str(seat.local_rank))
        self.seated[seat.rank] = time.monotonic()
        self.peak_bytes[seat.rank] = status_bytes("VmHWM")
        step = self._step_now()
        while link.may_enter(step):
            time.sleep(max(0.0, (step + 1) * self._step_s - time.monotonic()))
            step += 1
        link.tell_stopped(step - 1)
        while not any(self.may_end.all()):
            time.sleep(self._step_s)
        link.close()

    def _step_now(self) -> int:
        return int(time.monotonic() / self._step_s)

    def end(self) -> int:
        """Wait for all ranks and kill those that do not end in time. Returns how many ended badly."""
        self.may_end[0] = True
        deadline = time.monotonic() + PATIENCE_S / 4
        bad = 0
        for pid in self.pids:
            while not (found := os.waitpid(pid, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.002)
            bad += found[1] != 0
        return bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    seated_s: float
    """From the first rank's call until the last rank has the addresses of all."""
    after_fork_s: float
    """From the fork of the last rank until then."""
    stopped_s: float
    """From `ask_to_stop` until `stopped_at` is known."""
    seating_cpu_s: float
    """Processor time of the launcher, from its first answer until all are seated."""
    stopping_cpu_s: float
    threads: int
    """The largest number of threads of the launcher, its main thread included."""
    before_bytes: float
    """Resident memory of the launcher before it answers any rank."""
    peak_bytes: float
    """The largest resident memory of the launcher."""
    rank_peak_bytes: float
    """The median over ranks of their largest resident memory. Most of it is shared with the launcher, by the fork."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--ranks-a-node", type=int, default=8)
    parser.add_argument("--step", type=float, default=0.25, help="seconds a step")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    seats = seats_of([f"n{rank // options.ranks_a_node:04d}" for rank in range(options.ranks)])
    rounds = [measure(seats, options.step) for _ in range(options.repeats)]
    print(f"{options.ranks} ranks, {options.ranks_a_node} a node, {options.repeats} times")
    tell("all seated, from the first call", [each.seated_s for each in rounds], SEATED_PROMISE_S)
    tell("all seated, from the last fork", [each.after_fork_s for each in rounds])
    tell("all stopped", [each.stopped_s for each in rounds], STOPPED_PROMISE_S)
    tell("launcher's processor time, seating", [each.seating_cpu_s for each in rounds])
    tell("launcher's processor time, stopping", [each.stopping_cpu_s for each in rounds])
    first = rounds[0]  # the peak of this process never falls, so later rounds show no new one
    print(
        f"  launcher: {first.threads} threads, {first.peak_bytes / MEGABYTE:.1f} MB at its peak, "
        f"{first.before_bytes / MEGABYTE:.1f} MB before the first rank; "
        f"a rank: {first.rank_peak_bytes / MEGABYTE:.1f} MB, most of it shared"
    )
    kept = all(
        each.seated_s < SEATED_PROMISE_S and each.stopped_s < STOPPED_PROMISE_S for each in rounds
    )
    return 0 if kept else 1


def measure(seats: Sequence[Seat], step_s: float) -> Measured:
    with closing(ControlServer(seats, host="127.0.0.1")) as server:
        ranks = Ranks(seats, server, step_s)
        try:
            before_bytes = status_bytes("VmHWM")
            serving_cpu_s = time.process_time()
            server.serve()
            threads = wait_until(lambda: all(ranks.seated.all()), "seated")
            seating_cpu_s = time.process_time() - serving_cpu_s
            time.sleep(SETTLE_S)
            asked, asked_cpu_s = time.monotonic(), time.process_time()
            server.ask_to_stop()
            threads = max(threads, wait_until(lambda: server.stopped_at is not None, "stopped"))
            stopped, stopping_cpu_s = time.monotonic(), time.process_time() - asked_cpu_s
        except BaseException:
            for pid in ranks.pids:
                os.kill(pid, signal.SIGKILL)
            raise
        finally:
            bad = ranks.end()
        if bad:
            raise SystemExit(f"{bad} ranks ended badly")
        last = max(ranks.seated.all())
        return Measured(
            seated_s=last - min(ranks.connecting.all()),
            after_fork_s=last - ranks.forked,
            stopped_s=stopped - asked,
            seating_cpu_s=seating_cpu_s,
            stopping_cpu_s=stopping_cpu_s,
            threads=threads,
            before_bytes=before_bytes,
            peak_bytes=status_bytes("VmHWM"),
            rank_peak_bytes=statistics.median(ranks.peak_bytes.all()),
        )


def wait_until(condition: Callable[[], bool], what: str) -> int:
    """Wait until `condition` holds. Returns the largest number of threads that this process had meanwhile."""
    deadline = time.monotonic() + PATIENCE_S / 2
    threads = 0
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"the ranks were not {what} within {PATIENCE_S / 2:.0f} s")
        threads = max(threads, threading.active_count())
        time.sleep(0.01)
    return threads


def status_bytes(name: str) -> float:
    """A size in bytes of this process, from /proc/self/status (see proc(5))."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def tell(what: str, seconds: Sequence[float], promise_s: float | None = None) -> None:
    promised = f"; promised: under {promise_s:g} s" if promise_s else ""
    print(
        f"  {what}: median {statistics.median(seconds):.2f} s, "
        f"{min(seconds):.2f} to {max(seconds):.2f} s{promised}"
    )


if __name__ == "__main__":
    sys.exit(main())
