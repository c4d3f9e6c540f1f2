"""The end of processes: a scheduler's stop signal does not end a rank, the end of the parent ends every process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path


def ignore_stop_signals() -> None:
    """Ignore SIGTERM, SIGUSR1 and SIGUSR2 in this rank.

    Schedulers send them to every process of a job. Only the launcher acts on them, and it asks its ranks to stop. A
    rank whose launcher has ended still ends, because its connection to the launcher breaks.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends (prctl(2), PR_SET_PDEATHSIG).

    Right after a fork, pass the id of the parent: it may have ended before this call, and the process is then killed at
    once.
    """
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if parent is not None and is_orphan(parent):
        os.kill(os.getpid(), signal.SIGKILL)


def end_with_parent() -> None:
    """Kill this process, which multiprocessing has spawned, when its parent has ended, however it ended.

    `die_with_parent` does not serve here: the kernel also sends its signal when the thread ends that has started the
    process, and engines start theirs in threads that end soon.
    """
    threading.Thread(target=_outlive_no_parent, name="parent", daemon=True).start()


def _outlive_no_parent() -> None:
    while (parent := multiprocessing.parent_process()) is None:  # it is known after all imports
        time.sleep(0.01)
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def is_orphan(parent: int) -> bool:
    """Whether the process with this id is not the parent of this one any more, because it has ended.

    Take the id from the parent itself. `os.getppid()` names another process if the parent has ended before the call.
    """
    return os.getppid() != parent


def living_with(variable: str, value: str) -> dict[int, dict[str, str]]:
    """This user's processes on this host that were started with the environment variable at this value.

    Of each its id, and the environment that it was started with.
    """
    entry = f"{variable}={value}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
            entries = (process / "environ").read_bytes().split(b"\0")
            if entry in entries:
                pairs = (each.decode(errors="surrogateescape").partition("=") for each in entries)
                found[int(process.name)] = {name: held for name, _, held in pairs}
    return found
