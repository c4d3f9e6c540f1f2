"""Objects that this process writes to a store through fsspec. One is there, whole, when the close of its file returns."""

from __future__ import annotations

import contextlib
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


def listed(url: str) -> dict[str, int] | None:
    """Bytes of the objects below, by name. None where they cannot be listed by a file system that the program has written by."""
    known: Any = _FILE_SYSTEMS.get(storage.scheme(url))
    if not hasattr(known, "find"):
        return None
    for renewed in (False, True):
        with contextlib.suppress(Exception):  # each store has errors of its own
            own = _like(known) if renewed else known
            own.invalidate_cache()
            found = own.find(url, detail=True)
            return {name: int(info.get("size") or 0) for name, info in found.items()}
    return None


def _like(file_system: Any) -> Any:
    """When the process ends, a file system may have closed its connection already."""
    kind: Any = type(file_system)
    return kind(*file_system.storage_args, **file_system.storage_options, skip_instance_cache=True)


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
