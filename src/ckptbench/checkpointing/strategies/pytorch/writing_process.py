"""The process of an engine that writes for a rank, and gets the copy of the state through shared memory.

Whoever starts one also ends it when Python ends: multiprocessing would wait for it after a SIGTERM, which a rank and all
that it starts ignore.
"""

from __future__ import annotations

import multiprocessing.resource_sharer
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import tempfile
from multiprocessing.process import BaseProcess
from typing import Any

from ckptbench.common.errors import CheckpointError
from ckptbench.common.memory_kills import MemoryKills, ended

LONGEST = 107 - len("/pymp-12345678/listener-12345678")
"""Bytes of a folder in which multiprocessing can make its sockets (unix(7): a path has at most 107)."""
SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def make_room_for_sockets() -> None:
    """Have multiprocessing, which hands on memory through a socket, make it elsewhere if TMPDIR is too long for the path of one.

    Call it before the first process is started. Raises CheckpointError where no other folder can be written.
    """
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) <= LONGEST:
        return
    for folder in SHORT:
        if os.access(folder, os.W_OK | os.X_OK):
            tempfile.tempdir = folder
            try:
                multiprocessing.util.get_temp_dir()  # which it keeps, and removes at its end
            finally:
                tempfile.tempdir = usual
            return
    raise CheckpointError(
        f"TMPDIR ({usual}) is longer than the {LONGEST} bytes that a socket in it leaves, and none of {', '.join(SHORT)} can be written: "
        "set a shorter TMPDIR"
    )


def died(process: BaseProcess, before: MemoryKills) -> CheckpointError:
    """The error of a save whose process has ended. `before`: the kernel's kills when the strategy was opened."""
    return CheckpointError(
        f"the process that writes in the background {ended(process.exitcode or 0, before)}"
    )


def end_sharing() -> None:
    """End the thread and the process that have handed memory to a process that has ended.

    They stay where another process of this one lives: the second of the two ends with the last that knows it. It is the
    parent's where multiprocessing has started this process.
    """
    if multiprocessing.active_children():
        return
    multiprocessing.resource_sharer.stop()
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    if tracker._pid is not None:
        tracker._stop()
