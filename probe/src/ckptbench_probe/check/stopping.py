"""In a rank of a training that `check stop` stops: wait at an update for the signal, and say where the rank stands if it does not end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from time import monotonic_ns
from types import FrameType

from ckptbench_probe.check import meeting
from ckptbench_probe.check.processes import below
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import STOP_BY, seat

STOPPED, STANDS = "stopped_at_update", "stands"
READY = "ready-for-signal"
"""File that rank 0 leaves when all ranks have made the update."""
SENT = "signal-sent"
"""File that the check leaves when the launcher has the signal, if it is to get it."""
LOOK = "look"
"""File that the check leaves when ranks that still live are to say where they stand."""
LOOKS_S, LOOKS_US = 0.1, 20_000
ITSELF = "itself"
HANDED_ON_S = 5.0
"""For a launcher to hand the signal on; then training goes on without."""
LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}
    | {os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, "<frozen"}
)


def await_signal(update: int, thread: int | None) -> None:
    """`thread`: that updates."""
    folder = PROCESS.trace.folder
    PROCESS.updates.write()
    _watch(folder, thread)
    own = seat()
    PROCESS.trace.write(STOPPED, update=update, rank=own.rank if own else 0, at_ns=monotonic_ns())
    meeting.meet(os.path.join(folder, READY))
    name, by = os.environ[STOP_BY].split()
    if by == ITSELF:
        meeting.wait_for([os.path.join(folder, SENT)])
        for process in [*below(os.getpid()), os.getpid()]:
            os.kill(process, signal.Signals[name])
    else:
        _await(os.path.join(folder, SENT), signal.Signals[name])


def _await(sent: str, number: signal.Signals) -> None:
    """From the launcher, which may take its time to hand it on. The call is in C, as Python's own goes on sleeping after a signal."""
    sleep = ctypes.CDLL(None).usleep
    until = time.monotonic() + meeting.WAITS_S
    came = False
    while not came and time.monotonic() < until:
        came = sleep(LOOKS_US) != 0
        if until > time.monotonic() + HANDED_ON_S and os.path.exists(sent):
            ignored = signal.getsignal(number) is signal.SIG_IGN
            until = time.monotonic() + (0 if ignored else HANDED_ON_S)


def _watch(folder: str, thread: int | None) -> None:
    """A thread that holds nothing up."""

    @harmless
    def look() -> None:
        while not os.path.exists(os.path.join(folder, LOOK)):
            time.sleep(LOOKS_S)
        own = seat()
        PROCESS.trace.write(STANDS, rank=own.rank if own else 0, where=place(thread))

    threading.Thread(target=look, name="ckptbench-probe", daemon=True).start()


def place(thread: int | None) -> str:
    """The innermost function of a thread, and the innermost line of the program itself: `barrier, called by train.py:41`."""
    stack = list(_stack(thread))
    own = next((one for one in stack if not one.f_code.co_filename.startswith(LIBRARIES)), None)
    if not stack or own is None:
        return "no code of the program"
    line = f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}"
    return line if own is stack[0] else f"{stack[0].f_code.co_name}, called by {line}"


def _stack(thread: int | None) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread or threading.main_thread().ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back
