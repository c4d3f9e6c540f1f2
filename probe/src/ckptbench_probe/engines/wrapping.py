"""The wrapper around a call that saves."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

from ckptbench_probe import storage, stores
from ckptbench_probe.engines.calls import Call, Content, Target
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save
from ckptbench_probe.variables import CHECK, seat
from ckptbench_probe.watcher import everything


def of_first_rank(name: str) -> bool:
    """Of a folder to which all ranks write, the first one counts every file: no file counts twice."""
    own = seat()
    return own is None or own.rank == 0


def saving(
    original: Call,
    kind: str,
    *,
    target: Target,
    content: Content | None = None,
    after: Callable[[Save, Any], None] | None = None,
    owned: Callable[[str], bool] = everything,
) -> Call:
    """`after` is told of the save and what the call returned; without it, the save is finished then. A check is inside of what is measured."""
    if content is not None and os.environ.get(CHECK):
        from ckptbench_probe.check.armed import around

        original = around(original, kind, target, content)

    @harmless
    def place(args: Any, kwargs: Any) -> str | None:
        path = target(args, kwargs)
        return None if path is None else storage.place(path)

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        path = place(args, kwargs)
        if path is None:
            return original(*args, **kwargs)
        begun = PROCESS.saves.begin(kind, path, owned)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            PROCESS.saves.end(begun, failed=True)
            if (write := harmless(stores.open_at)(path)) is not None:
                write.cut_off = True
            raise
        given = harmless(content)(args, kwargs) if content else None
        write = harmless(stores.open_at)(path)
        if begun is not None and write is not None:
            PROCESS.saves.hold(begun, write, given)
            return result
        PROCESS.saves.end(begun, given)
        if begun is not None:
            harmless(after or _finish)(begun, result)
        return result

    return save


def at_end(future: Any, tell: Callable[[bool], None]) -> None:
    """Say once whether a future has failed or was cancelled, before anybody who waits for it goes on: callbacks come after these."""
    has_ended, own_error = future.done, future.exception
    told: list[Any] = []

    @harmless
    def ended(_: Any = None) -> None:
        if not told:
            told.append(future)
            tell(future.cancelled() or own_error() is not None)

    def heard(ask: Call) -> Call:
        @functools.wraps(ask)
        def asked(*args: Any, **kwargs: Any) -> Any:
            try:
                return ask(*args, **kwargs)
            finally:
                if has_ended():
                    ended()

        return asked

    future.add_done_callback(ended)
    for name in ("result", "exception", "done"):
        setattr(future, name, heard(getattr(future, name)))


def _finish(save: Save, _: Any) -> None:
    """Nothing goes on beside the steps, so a write is cheap, and the process may be killed at any time."""
    PROCESS.saves.finished(save, save.ended_ns)
    PROCESS.trace.flush()
