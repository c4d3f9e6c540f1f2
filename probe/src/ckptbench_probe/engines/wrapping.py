"""The wrapper around a call that saves."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save
from ckptbench_probe.variables import CHECK, seat
from ckptbench_probe.watcher import everything

Call = Callable[..., Any]
Target = Callable[["tuple[Any, ...]", "dict[str, Any]"], "str | None"]
"""Where a call with these arguments writes to; None: it is no checkpoint."""
Content = Callable[["tuple[Any, ...]", "dict[str, Any]"], Any]
"""The state that it is given."""


def path_of(target: Any) -> str | None:
    """The path of a file to save to, given as a path or opened by its name; None where it is none, as memory or a pipe."""
    if isinstance(target, (str, bytes, os.PathLike)):
        return os.fsdecode(target)
    name = getattr(target, "name", None)
    return os.fsdecode(name) if isinstance(name, (str, bytes)) and os.path.lexists(name) else None


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def path_at(place: int, name: str) -> Target:
    return lambda args, kwargs: path_of(argument(args, kwargs, place, name))


def content_at(place: int, name: str) -> Content:
    return lambda args, kwargs: argument(args, kwargs, place, name)


def first(original: Call, tell: Call) -> Call:
    """Around a call: `tell` is called before, with the same arguments."""
    heard = harmless(tell)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        heard(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def then(original: Call, tell: Callable[[Any], Any]) -> Call:
    """Around a call: `tell` is called with what it returns."""
    heard = harmless(tell)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        heard(result)
        return result

    return call


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

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        path = harmless(target)(args, kwargs)
        if path is None:
            return original(*args, **kwargs)
        begun = PROCESS.saves.begin(kind, path, owned)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            PROCESS.saves.end(begun, failed=True)
            raise
        PROCESS.saves.end(begun, harmless(content)(args, kwargs) if content else None)
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
