"""Objects that this process writes to a store through fsspec. One is there, whole, when the close of its file returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from ckptbench_probe import storage


@dataclass(eq=False)
class Write:
    """One file that the program has opened to write."""

    url: str
    begun_ns: int = field(default_factory=monotonic_ns)
    closing: bool = False
    stored: bool = False
    """Its close has returned."""
    cut_off: bool = False
    """What saved to it has failed, so that it lacks some, though its close goes well."""


_OPEN: dict[str, Write] = {}
"""Of each URL, the newest that is not stored."""
_FILE_SYSTEMS: dict[str, Any] = {}
"""Of each scheme, the file system of fsspec that the program has written by: it has the program's own options."""


def begin(url: str, file_system: Any) -> Write:
    _FILE_SYSTEMS[storage.scheme(url)] = file_system
    _OPEN[url] = Write(url)
    return _OPEN[url]


def open_at(path: str) -> Write | None:
    """The file of this URL that the program has still open."""
    return _OPEN.get(path)


def end(write: Write) -> None:
    write.stored = True
    if _OPEN.get(write.url) is write:
        del _OPEN[write.url]


def write_of(file: Any) -> Write | None:
    """None of a file that is not one of a store, or that is not open to write."""
    found = getattr(file, "__dict__", {}).get(MARK)
    return found if isinstance(found, Write) else None


MARK = "_ckptbench_probe_write"
"""Attribute of a file of fsspec."""


def file_system(url: str) -> Any:
    """To read what lies there. Raises what fsspec raises where the package of this scheme is missing, or has no credentials."""
    known = _FILE_SYSTEMS.get(storage.scheme(url))
    if known is None:
        from fsspec.core import url_to_fs

        known = url_to_fs(url)[0]
    known.invalidate_cache()
    return known


def opened(url: str) -> Any:
    """A file to read. Raises UnreadableError, which says what is missing."""
    try:
        return file_system(url).open(url, "rb")
    except ImportError as error:
        raise UnreadableError(f"{error}, in the environment of the training") from error
    except PermissionError as error:
        raise UnreadableError(
            f"the store refuses to read {url} ({error}): its credentials need to read, too"
        ) from error


class UnreadableError(Exception):
    """The message says what is missing to read what lies in a store."""


def renew() -> None:
    """In a forked child, which has no loop of fsspec: files of the parent are not its own."""
    _OPEN.clear()
    _FILE_SYSTEMS.clear()
