"""What the thread that steps hands to another is what a save there is given, however late it begins."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ckptbench_probe.check.given import CHECKER


@functools.cache
def patch() -> None:
    """Once a process."""
    ThreadPoolExecutor.submit = _submit(ThreadPoolExecutor.submit)  # type: ignore[method-assign]
    threading.Thread.start = _start(threading.Thread.start)  # type: ignore[method-assign]


def _submit(original: Any) -> Any:
    @functools.wraps(original)
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(self, _with_offer(fn, args, kwargs), *args, **kwargs)

    return submit


def _start(original: Any) -> Any:
    @functools.wraps(original)
    def start(self: Any) -> None:
        target = getattr(self, "_target", None)
        if target is not None:
            self._target = _with_offer(target, self._args, self._kwargs)
        original(self)

    return start


def _with_offer(call: Any, args: Any, kwargs: Any) -> Any:
    """The same call, during which its thread knows what the tensors were that it was handed: they live as long as it does."""
    offer = CHECKER.offer([*args, *kwargs.values(), *_inside(call)])
    if not offer:
        return call

    @functools.wraps(call, updated=())
    def with_offer(*args: Any, **kwargs: Any) -> Any:
        with CHECKER.offered(offer):
            return call(*args, **kwargs)

    return with_offer


def _inside(call: Any) -> list[Any]:
    """What a function has from where it was made."""
    if isinstance(call, functools.partial):
        return [*call.args, *call.keywords.values()]
    found = []
    for cell in getattr(call, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it is empty yet
            continue
    return found
