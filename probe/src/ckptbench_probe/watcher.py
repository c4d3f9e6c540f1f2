"""A thread that looks at saves that are under way: how much memory they take, and when the kernel has written their files."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Callable

from ckptbench_probe import cachestat, storage, stores
from ckptbench_probe.files import after_rename
from ckptbench_probe.harmless import harmless
from ckptbench_probe.trace import Trace

LOOK_S = 0.02
"""Between two looks at memory while a save is under way, and at least between two looks at its files after it."""
LATER = 0.1
"""Files are looked at again after this part of the time since the save was finished, which is how far `written back` may be off."""
SLOWEST_LOOK_S = 0.5
LONGEST_WATCH_S = 300.0
MOST_FILES = 1000
GONE = "gone"
RENAME_S = 1.0
"""A rename is heard just before it is made: the new name is there within this time."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Identity = tuple[int, int, int]
"""Inode, time of the last change in nanoseconds, and size: a file that a save has written has another than before."""


def identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=1)
def _opened(pid: int) -> int | None:
    """Kept open, so that a look takes one call; a forked child opens its own."""
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def resident_bytes() -> int:
    """Memory of this process; 0 where the kernel does not say."""
    file = _opened(os.getpid())
    return int(os.pread(file, 200, 0).split()[1]) * _PAGE_BYTES if file is not None else 0


@dataclass
class Watched:
    """One save. Its paths are files and folders, of which those files count that `owned` knows by name."""

    id: str
    paths: list[str]
    owned: Callable[[str], bool]
    before: dict[str, Identity | None]
    """What was there when the save began."""
    begun_ns: int
    begun_bytes: int
    peak_bytes: int = 0
    finished_ns: int | None = None
    next_ns: int = 0
    """When its files are looked at again."""
    file_system: str = ""
    renamed_ns: int = 0
    stored: dict[str, int] = field(default_factory=dict)
    """Of a save to an object store: the size of each object that was seen, by its URL."""
    stored_ns: int | None = None
    """When the last of them was there."""
    is_listed: bool = False
    """Whether its store is asked for its objects: not all writes are seen."""

    def finish(self) -> None:
        self.finished_ns = monotonic_ns()

    def look_later(self) -> None:
        assert self.finished_ns is not None
        now = monotonic_ns()
        after_ns = max(LOOK_S * 1e9, LATER * (now - self.finished_ns))
        self.next_ns = now + min(int(after_ns), int(SLOWEST_LOOK_S * 1e9))

    def files(self) -> Iterator[str]:
        """That are there now, and were not before or have changed."""
        for path in self.paths:
            for name in _below(path, self.owned):
                now = identity(name)
                if now is not None and now != self.before.get(name):
                    yield name


def _below(path: str, owned: Callable[[str], bool]) -> Iterator[str]:
    if not os.path.isdir(path):
        if owned(os.path.basename(path)):
            yield path
        return
    found = 0
    for folder, _, names in os.walk(path):
        for name in filter(owned, names):
            found += 1
            if found > MOST_FILES:
                return
            yield os.path.join(folder, name)


def everything(name: str) -> bool:
    return True


class Watcher:
    """Its thread is started by the first save, and ends when nothing is left to look at."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._watched: list[Watched] = []
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False

    def begin(self, id: str, path: str, owned: Callable[[str], bool] = everything) -> Watched:
        before = {name: identity(name) for name in _below(path, owned)}
        memory = resident_bytes()
        watched = Watched(id, [path], owned, before, monotonic_ns(), memory, memory)
        self._watched.append(watched)
        self._start()
        return watched

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._look_on, name="ckptbench-probe", daemon=True
            )
            self._thread.start()
        else:
            self._wake.set()

    def _look_on(self) -> None:
        while self._watched and not self._closed:
            now = monotonic_ns()
            under_way = any(watched.finished_ns is None for watched in list(self._watched))
            next_ns = min((watched.next_ns for watched in list(self._watched)), default=now)
            waits_s = LOOK_S if under_way else max(LOOK_S, (next_ns - now) / 1e9)
            self._wake.wait(waits_s)
            self._wake.clear()
            self.look()
            self._trace.flush()

    def look(self) -> None:
        memory = resident_bytes()
        now = monotonic_ns()
        for watched in list(self._watched):
            if watched.finished_ns is None:
                watched.peak_bytes = max(watched.peak_bytes, memory)
            elif now >= watched.next_ns or self._closed:
                self._look_at_files(watched)
                watched.look_later()

    @harmless
    def _look_at_files(self, watched: Watched) -> None:
        state, files, size = _state(watched)
        late = (monotonic_ns() - watched.begun_ns) / 1e9 > LONGEST_WATCH_S
        renamed = state == GONE and (monotonic_ns() - watched.renamed_ns) / 1e9 < RENAME_S
        if (state is None or renamed) and not late:
            return
        self._drop(watched, state or "not within 5 minutes", files, size)

    def _drop(self, watched: Watched, state: str, files: int, size: int) -> None:
        if watched not in self._watched:
            return
        self._watched.remove(watched)
        self._trace.write(
            "clean",
            save=watched.id,
            at_ns=watched.stored_ns or monotonic_ns(),
            state=state,
            files=files,
            size=size,
            file_system=watched.file_system or storage.file_system(watched.paths[0]),
            memory_bytes=max(0, watched.peak_bytes - watched.begun_bytes),
        )

    def renamed(self, source: str, target: str) -> None:
        """Files are watched under their new name; what lay under it before is not theirs."""
        for watched in list(self._watched):
            paths = [after_rename(path, source, target) for path in watched.paths]
            if paths != watched.paths:
                watched.before[target] = identity(target)
                watched.renamed_ns = monotonic_ns()
                watched.paths = paths

    def stored(self, url: str, size: int) -> None:
        """An object is in its store: it is of the newest save of its path or folder."""
        own = (one for one in reversed(self._watched) if any(storage.is_in(url, path) for path in one.paths))  # fmt: skip
        watched = next(own, None)
        if watched is not None:
            watched.stored[url], watched.stored_ns = size, monotonic_ns()

    def close(self) -> None:
        """Before the process ends: a last look."""
        self._closed = True
        self._wake.set()
        self.look()
        for watched in list(self._watched):
            _, files, size = _state(watched) if watched.finished_ns else (None, 0, 0)
            self._drop(watched, "not yet when the process ended", files, size)

    def renew(self) -> None:
        """In a forked child there is no such thread, and nothing to look at."""
        self._watched, self._thread = [], None
        self._wake = threading.Event()


def _state(watched: Watched) -> tuple[str | None, int, int]:
    """What can be said of the files, None as long as they are dirty; their number; their bytes."""
    files = size = 0
    watched.file_system = watched.file_system or storage.file_system(watched.paths[0])
    if storage.is_url(watched.paths[0]):
        listed = stores.listed(watched.paths[0]) if watched.is_listed else None
        if watched.is_listed and listed is None:
            return storage.NOT_SEEN, 0, 0
        stored = watched.stored if listed is None else listed
        return storage.UPLOADED if stored else storage.NOT_SEEN, len(stored), sum(stored.values())
    clean = storage.clean_means(watched.file_system)
    unwritten, unseen = False, ""
    for name in watched.files():
        try:
            found = cachestat.pages(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            unseen = f"{storage.CANNOT_SEE}: {error.strerror}"
            files, size = files + 1, size + os.stat(name).st_size
            continue
        files, size = files + 1, size + found.size_bytes
        unwritten = unwritten or found.unwritten > 0
        if found.size_bytes and not found.cached and clean == storage.WRITTEN_BACK:
            unseen = f"{storage.CANNOT_SEE}: the kernel keeps no page of the files"
    if not files:
        return GONE, 0, 0
    if clean in (storage.MEMORY, storage.CANNOT_SEE):
        return clean, files, size
    if unwritten:
        return None, files, size
    return unseen or clean, files, size
