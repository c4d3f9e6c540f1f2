"""What the thread that steps hands to another is what a save there is given, however late it begins.

It may be the arguments of a thread or of a pool, what their function has from where it was made, or what is put into a queue.
"""

from __future__ import annotations

import functools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ckptbench_probe.check.given import CHECKER
from ckptbench_probe.engines.calls import first


@functools.cache
def patch() -> None:
    """Once a process."""
    ThreadPoolExecutor.submit = first(ThreadPoolExecutor.submit, _hand)  # type: ignore[method-assign]
    # A thread has its function and arguments as attributes, beside those of a class of the program's own.
    threading.Thread.start = first(threading.Thread.start, lambda self: _hand(self, *getattr(self, "__dict__", {}).values()))  # type: ignore[method-assign]  # fmt: skip
    queue.Queue.put = first(queue.Queue.put, _hand)  # type: ignore[method-assign]
    queue.SimpleQueue = _simple_queue(queue.SimpleQueue)  # type: ignore[misc]


def _hand(_: Any, /, *args: Any, **kwargs: Any) -> None:
    CHECKER.hand([*args, *kwargs.values()])


def _simple_queue(original: Any) -> Any:
    """It is written in C, so it cannot be changed: pools of threads use it, too."""

    class SimpleQueue(original):  # type: ignore[misc]
        put = first(original.put, _hand)

    return SimpleQueue
