"""The end of processes: a scheduler's stop signal does not end a rank, the end of the parent ends every process."""

from __future__ import annotations

import ctypes
import os
import signal


def ignore_stop_signals() -> None:
    """Ignore SIGTERM, SIGUSR1 and SIGUSR2 in this rank.

    Schedulers send them to every process of a job. Only the launcher acts on them, and it asks its ranks to stop. A
    rank whose launcher has ended still ends, because its connection to the launcher breaks.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def die_with_parent(parent: int | None = None, *, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends (prctl(2), PR_SET_PDEATHSIG).

    Right after a fork, pass the id of the parent: it may have ended before this call, and the process then gets the
    signal at once.
    """
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, by)
    if parent is not None and is_orphan(parent):
        os.kill(os.getpid(), by)


def is_orphan(parent: int) -> bool:
    """Whether the process with this id is not the parent of this one any more, because it has ended.

    Take the id from the parent itself. `os.getppid()` names another process if the parent has ended before the call.
    """
    return os.getppid() != parent
