"""Processes that a process has started, however deep: found by /proc, ended by SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Callable

SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
"""Of prctl(2)."""
PAUSE_S = 0.02
LIMIT_S = 10.0


def adopt_orphans() -> None:
    """From now on, processes below this one whose parents end become its children, so that none is lost (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def dying_with_parent() -> Callable[[], None]:
    """For a new child to call before it becomes a program: it gets SIGTERM when this process is killed (Linux)."""
    call, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        call(SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def bury_adopted() -> None:
    """Those that have ended. To be called when no other child is waited for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return  # there is none


def below(ancestor: int) -> list[int]:
    """Living processes; those that have ended and are not waited for yet are left out."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has ended meanwhile
            if state not in "ZX":
                children[int(parent)].append(int(entry.name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        new = children[waiting.pop()]
        found += new
        waiting += new
    return found


def end_below(ancestor: int, *, but: int | None = None) -> None:
    """All of them. `but`: one that is spared."""
    for process in below(ancestor):
        if process != but:
            try:
                os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended meanwhile, or is of another user


def end_all_below(ancestor: int) -> None:
    """Until none is left, as one may start another meanwhile; for `LIMIT_S` at most, as one may wait for a disk, or be of another user."""
    limit = time.monotonic() + LIMIT_S
    while below(ancestor) and time.monotonic() < limit:
        end_below(ancestor)
        time.sleep(PAUSE_S)
