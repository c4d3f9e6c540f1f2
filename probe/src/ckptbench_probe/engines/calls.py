"""Calls that save: where they write to, what they are given, and what else is told of them."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

from ckptbench_probe import stores
from ckptbench_probe.harmless import harmless

Call = Callable[..., Any]
Target = Callable[["tuple[Any, ...]", "dict[str, Any]"], "str | None"]
"""Where a call with these arguments writes to; None: it is no checkpoint."""
Content = Callable[["tuple[Any, ...]", "dict[str, Any]"], Any]
"""The state that it is given."""


def path_of(target: Any) -> str | None:
    """The path of a file to save to, given as a path or opened by its name, or the URL of one that fsspec has opened; None where it is none, as memory or a pipe."""
    if isinstance(target, (str, bytes, os.PathLike)):
        return os.fsdecode(target)
    write = stores.write_of(target)
    if write is not None:
        return write.url
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
