"""The process of an engine that writes for a rank, and gets the copy of the state through shared memory.

Whoever starts one also ends it when Python ends: multiprocessing would wait for it after a SIGTERM, which a rank and all
that it starts ignore.
"""

from __future__ import annotations

import multiprocessing.resource_sharer
import multiprocessing.resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from ckptbench.common.errors import CheckpointError
from ckptbench.common.memory_kills import MemoryKills, ended


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
