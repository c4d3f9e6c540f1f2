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


@functools.cache
def patch() -> None:
    """Once a process."""
    ThreadPoolExecutor.submit = _submit(ThreadPoolExecutor.submit)  # type: ignore[method-assign]
    threading.Thread.start = _start(threading.Thread.start)  # type: ignore[method-assign]
    queue.Queue.put = _put(queue.Queue.put)  # type: ignore[method-assign]
    queue.SimpleQueue = _simple_queue(queue.SimpleQueue)  # type: ignore[misc]


def _submit(original: Any) -> Any:
    @functools.wraps(original)
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        CHECKER.hand([*args, *kwargs.values(), fn])
        return original(self, fn, *args, **kwargs)

    return submit


def _start(original: Any) -> Any:
    """A thread has its function and arguments as attributes, beside those of a class of the program's own."""

    @functools.wraps(original)
    def start(self: Any) -> None:
        CHECKER.hand([*getattr(self, "__dict__", {}).values()])
        original(self)

    return start


def _put(original: Any) -> Any:
    @functools.wraps(original)
    def put(self: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        CHECKER.hand([item])
        return original(self, item, *args, **kwargs)

    return put


def _simple_queue(original: Any) -> Any:
    """It is written in C, so it cannot be changed: pools of threads use it, too."""

    class SimpleQueue(original):  # type: ignore[misc]
        put = _put(original.put)

    return SimpleQueue
