"""The end of a rank's process: a scheduler's stop signal does not end it, the end of its parent does."""

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


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends (prctl(2), PR_SET_PDEATHSIG).

    Right after a fork, pass the id of the parent: it may have ended before this call, and the process then ends at
    once.
    """
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
