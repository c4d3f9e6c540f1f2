"""What one save was given, and where its file is looked at again."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

from ckptbench_probe.check.trees import names_of
from ckptbench_probe.stores import Write

Values = Iterable[tuple[Any, ...]]
"""Names, their values, and the hand-over that each is of, if any. A name is a path of keys, or of DCP a text, or a text and an offset."""
Reader = Callable[["Given"], Values]
"""Loads what a save has written, by the engine's own reader."""


class CannotTellError(Exception):
    """The message says why a save cannot be compared."""


@dataclass(eq=False)
class Given:
    """What a save was given."""

    number: int
    kind: str
    path: str
    update: int = 0
    done: int = 0
    """Updates of this process before it."""
    digests: dict[Any, str] | None = None
    """None until they are taken."""
    others: dict[Any, str] = field(default_factory=dict)
    """Objects that are no tensors and no plain values, by their type."""
    trouble: str = ""
    """Why they could not be taken."""
    told: bool = False
    shapes: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    """Of the tensors."""
    as_given: bool = True
    """Whether the thread that steps has fixed all values, so that they are what the program meant to save."""
    at_begin: bool = False
    """Whether `update` is that at which another thread has begun to save: the state may be older."""
    rank: int = 0
    """In the group of processes that save."""
    elsewhere: int = 0
    """Tensors that another rank has written, and compares."""

    def names(self, some: Iterable[Any]) -> list[str]:
        if self.kind.startswith("dcp"):
            return [name if isinstance(name, str) else str(name[0]) for name in some]
        every = [*(self.digests or ()), *self.others]
        shown = names_of(name for name in every if isinstance(name, tuple))
        return [shown[name] if isinstance(name, tuple) else str(name) for name in some]


@dataclass
class Late:
    """A file that was not whole when its save returned: its object may write more until it is closed."""

    given: Given
    read: Reader
    file: Callable[[], Any]
    write: Write | None = None
    """Of a file of fsspec: it has no content to read before it is stored."""

    @property
    def is_open(self) -> bool:
        if self.write is not None:
            return not self.write.stored
        file = self.file()
        return file is not None and getattr(file, "closed", False) is False


def weakly(file: Any) -> Callable[[], Any]:
    """A file that nobody holds any more is closed: it must not live on here."""
    try:
        return weakref.ref(file)
    except TypeError:
        return lambda: None
