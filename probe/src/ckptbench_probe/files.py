"""What Python does to files in the folders of checkpoints: renames, links, copies, removals, pointer files, syncs.

Python's audit events tell all but syncs, for which `os.fsync` and `os.fdatasync` are wrapped. What a library does in C++ or Rust is not seen.
"""

from __future__ import annotations

import functools
import os
import sys
from time import monotonic_ns
from typing import Any, Callable

from ckptbench_probe import storage
from ckptbench_probe.harmless import harmless
from ckptbench_probe.trace import Trace

POINTERS = ("latest", "last", "checkpoint", "trainer_state", "metadata", "index")
"""A small file whose name has one of these says which checkpoint counts."""
SMALL_ENDINGS = ("", ".txt", ".json", ".yaml", ".yml")
LONGEST_TEXT = 200
"""Bytes of a pointer whose text is kept."""
Renamed = Callable[[str, str], None]


def after_rename(path: str, source: str, target: str) -> str:
    """The path of what may lie in a file or folder that is renamed."""
    if path.rstrip(os.sep) == source:
        return target
    below = source.rstrip(os.sep) + os.sep
    return os.path.join(target, path[len(below) :]) if path.startswith(below) else path


class Files:
    """Silent until the first save names a folder."""

    def __init__(self, trace: Trace, renamed: Renamed) -> None:
        self._trace = trace
        self._renamed = renamed
        self._roots: set[str] = set()
        self._pointers: dict[str, int] = {}
        """When each was opened last."""
        self._on = False
        events: dict[str, Callable[[Any], None]] = {
            "os.rename": self._on_rename,
            "os.symlink": self._on_link,
            "os.link": self._on_hard_link,
            "os.remove": self._on_removal,
            "os.rmdir": self._on_removal,
            "shutil.rmtree": self._on_removal,
            "shutil.move": self._on_move,
            "shutil.copyfile": self._on_copy,
            "open": self._on_open,
        }
        self._events = {name: harmless(handler) for name, handler in events.items()}

    def watch(self, path: str) -> None:
        """The folder that the path lies in is one of checkpoints."""
        self._roots.add(os.path.dirname(storage.place(path)).rstrip(os.sep) + os.sep)
        if not self._on and not storage.is_url(path):
            self._on = True
            sys.addaudithook(self._hear)
            self._wrap_syncs()

    def renew(self) -> None:
        """In a forked child."""
        self._roots.clear()
        self._pointers.clear()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        handler = self._events.get(event)
        if handler is not None and self._roots:
            handler(arguments)

    def _inside(self, path: Any, *open_folders: Any) -> str | None:
        """The absolute path, if it lies in a folder of checkpoints. One that is relative to an open folder is not looked at, as `shutil.rmtree` uses."""
        if not isinstance(path, (str, bytes, os.PathLike)) or set(open_folders) - {None, -1}:
            return None
        whole = os.path.abspath(os.fsdecode(path))
        return whole if any(whole.startswith(root) for root in self._roots) else None

    def _on_rename(self, arguments: Any) -> None:
        """Of a link, what it points to is noted: it may not be there yet."""
        names = self._both_names(arguments)
        if names is None:
            return
        source, target = names
        if not os.path.islink(source):
            self._renamed(source, target)
        known = source if self._inside(source) or self._holds_root(source) else None
        size, to = os.lstat(source).st_size, _points_to(source, target)
        self._trace.queue(
            "moved", at_ns=monotonic_ns(), path=target, source=known, size=size, to=to
        )

    def _both_names(self, arguments: Any) -> tuple[str, str] | None:
        """If the new one lies in a folder of checkpoints, or a folder of checkpoints is renamed, which then has another name."""
        if set(arguments[2:]) - {None, -1}:
            return None  # relative to open folders
        source, target = (os.path.abspath(os.fsdecode(name)) for name in arguments[:2])
        if not (os.path.lexists(source) and os.path.isdir(os.path.dirname(target))):
            return None  # it will fail, and Python tells the program so
        if self._holds_root(source):
            self._roots |= {
                after_rename(root, source, target).rstrip(os.sep) + os.sep for root in self._roots
            }
            return source, target
        return (source, target) if self._inside(target) else None

    def _holds_root(self, folder: str) -> bool:
        return any(root.startswith(folder.rstrip(os.sep) + os.sep) for root in self._roots)

    def _on_link(self, arguments: Any) -> None:
        target = self._inside(arguments[1], *arguments[2:])
        if target is not None:
            to = os.fsdecode(arguments[0])
            self._trace.write("linked", at_ns=monotonic_ns(), path=target, to=to)

    def _on_hard_link(self, arguments: Any) -> None:
        """It is the file itself under another name."""
        target = self._inside(arguments[1], *arguments[2:])
        if target is not None:
            source = os.path.abspath(os.fsdecode(arguments[0]))
            self._trace.write("linked", at_ns=monotonic_ns(), path=target, to=source, source=source)

    def _on_removal(self, arguments: Any) -> None:
        path = self._inside(*arguments)
        if path is not None and os.path.lexists(path):
            self._trace.write("removed", at_ns=monotonic_ns(), path=path)

    def _on_move(self, arguments: Any) -> None:
        """Between two devices, `shutil.move` copies: the final name exists before the file is whole. Else it renames, which is heard by itself."""
        source, target = (os.path.abspath(os.fsdecode(name)) for name in arguments[:2])
        if os.path.isdir(target):
            target = os.path.join(target, os.path.basename(source))
        names = self._both_names((source, target))
        devices = {os.stat(os.path.dirname(path)).st_dev for path in names or ()}
        if len(devices) > 1:
            self._renamed(source, target)
            self._trace.write("copied", at_ns=monotonic_ns(), path=target, source=source)

    def _on_copy(self, arguments: Any) -> None:
        """Of a checkpoint, to wherever."""
        source = self._inside(arguments[0])
        if source is not None:
            path = os.path.abspath(os.fsdecode(arguments[1]))
            self._trace.queue("duplicated", at_ns=monotonic_ns(), path=path, source=source)

    def _on_open(self, arguments: Any) -> None:
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR):
            return
        name = self._inside(path)
        if name is not None and is_pointer(name):
            self._read_pointer(name)
            self._pointers[name] = monotonic_ns()
            self._trace.queue("pointer", at_ns=self._pointers[name], path=name)

    def _read_pointer(self, path: str) -> None:
        """What it said until now: it is not written yet when it is opened."""
        at_ns, to = self._pointers.pop(path, None), _points_to(path, path)
        if at_ns is not None and to:
            self._trace.queue("pointed", at_ns=at_ns, path=path, to=to)

    def stored(self, url: str, text: str | None) -> None:
        """An object is there now. `text`: what it says, of a small one with the name of a pointer."""
        if text and self.knows(url):
            self._trace.queue("pointed", at_ns=monotonic_ns(), path=url, to=text)

    def knows(self, url: str) -> bool:
        """Whether it lies where checkpoints do."""
        return any(url.startswith(root) for root in self._roots)

    def close(self) -> None:
        for path in [*self._pointers]:
            self._read_pointer(path)

    def _wrap_syncs(self) -> None:
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._noted(getattr(os, name)))

    def _noted(self, sync: Callable[[Any], None]) -> Callable[[Any], None]:
        """A sync of a file whose content Python still holds back writes nothing, so its size then is kept."""

        @functools.wraps(sync)
        def noted(file: Any) -> None:
            found = self._synced_file(file)
            begun = monotonic_ns()
            sync(file)
            if found is not None:
                harmless(self._trace.write)("synced", at_ns=monotonic_ns(), begun_ns=begun, **found)

        return noted

    @harmless
    def _synced_file(self, file: Any) -> dict[str, Any] | None:
        """Its path, and its size before the sync."""
        number = file if isinstance(file, int) else file.fileno()
        path = self._inside(os.readlink(f"/proc/self/fd/{number}"))
        return None if path is None else {"path": path, "size": os.fstat(number).st_size}


def is_pointer(path: str) -> bool:
    stem, ending = os.path.splitext(os.path.basename(path))
    return ending in SMALL_ENDINGS and any(word in stem.lower() for word in POINTERS)


def _points_to(path: str, target: str) -> str | None:
    """Of a link, or a small file of text that gets the name of a pointer."""
    if os.path.islink(path):
        return os.readlink(path)
    if not (is_pointer(target) and os.path.isfile(path) and os.path.getsize(path) <= LONGEST_TEXT):
        return None
    with open(path, "rb") as file:
        return file.read().decode(errors="replace").strip()
