"""The saves of this process: when each began, blocked the thread that steps, was captured, and was finished.

A save that begins inside another, on the same thread, is part of it. One of the same path on another thread, while it is under way, is its
background part.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, Callable

from ckptbench_probe import storage, stores
from ckptbench_probe.files import Files
from ckptbench_probe.harmless import harmless
from ckptbench_probe.sizes import bytes_by_type, state_of
from ckptbench_probe.stores import Write
from ckptbench_probe.trace import Trace
from ckptbench_probe.updates import Updates
from ckptbench_probe.watcher import Watched, Watcher, everything

WHOLE = "save"
PART = "part"


@dataclass(eq=False)
class Save:
    """From its begin until it is finished."""

    id: str
    event: str
    path: str
    watched: Watched | None
    """None of a background part: the save that it belongs to is watched."""
    sizes: dict[str, int] = field(default_factory=dict)
    whole: Save | None = None
    """That a background part belongs to."""
    ended_ns: int | None = None
    thread: int = 0
    updates: int = 0
    """Done when its call returned."""
    finished: bool = False
    """It is over, well or not."""
    failed: bool = False

    def add(self, sizes: dict[str, int]) -> None:
        for name, size in sizes.items():
            self.sizes[name] = self.sizes.get(name, 0) + size


class Saves:
    def __init__(self, trace: Trace, updates: Updates) -> None:
        self._trace = trace
        self._updates = updates
        self._watcher = Watcher(trace)
        self._renamed: list[Callable[[str, str], None]] = [self._watcher.renamed]
        self._files = Files(trace, self._on_rename)
        self._stored: list[Callable[[], None]] = []
        self._held: dict[Write, list[Save]] = {}
        """Saves that end when the file of a store is closed."""
        self._local = threading.local()
        self._under_way: list[Save] = []
        self._number = 0
        self._told_state_of: int | None = None

    def on_rename(self, heard: Callable[[str, str], None]) -> None:
        """To be called with both names when a file or folder of checkpoints is renamed."""
        self._renamed.append(heard)

    def on_stored(self, heard: Callable[[], None]) -> None:
        """To be called when an object is in its store."""
        self._stored.append(heard)

    def _on_rename(self, source: str, target: str) -> None:
        for heard in self._renamed:
            harmless(heard)(source, target)

    @property
    def outermost(self) -> Save | None:
        """That this thread is inside of."""
        return getattr(self._local, "save", None)

    @harmless
    def begin(self, kind: str, path: str, owned: Callable[[str], bool] = everything) -> Save | None:
        """None where it is part of the one that this thread is inside of."""
        path = storage.place(path)
        outer = self.outermost
        if outer is not None:
            if outer.watched is not None and not _covers(outer.watched.paths, path):
                outer.watched.paths.append(path)
            return None
        on_stepping_thread = threading.get_ident() == self._stepping_thread()
        whole = None if on_stepping_thread else self._of_path(path)
        self._updates.queue()
        save = (
            self._new(kind, path, owned)
            if whole is None
            else Save(whole.id, PART, path, None, whole=whole)
        )
        self._local.save = save
        self._trace.queue(
            save.event,
            save=save.id,
            kind=kind,
            path=path,
            start_ns=monotonic_ns(),
            thread=threading.current_thread().name,
            stepping=on_stepping_thread,
            updates=self._updates.done,
        )
        return save

    def _new(self, kind: str, path: str, owned: Callable[[str], bool]) -> Save:
        self._number += 1
        id = f"{os.getpid()}.{self._number}"
        self._files.watch(path)
        save = Save(id, WHOLE, path, self._watcher.begin(id, path, owned))
        self._under_way.append(save)
        return save

    def _stepping_thread(self) -> int | None:
        return self._updates.thread or threading.main_thread().ident

    def _of_path(self, path: str) -> Save | None:
        """The oldest save of this path that is under way."""
        return next((save for save in self._under_way if save.path == path), None)

    @harmless
    def end(self, save: Save | None, content: Any = None, *, failed: bool = False) -> None:
        """The call returns to the program. `content`: the state that was given to it."""
        now = monotonic_ns()
        self.add(content)
        if save is None:
            return
        self._local.save = None
        self._tell_end(save, now, failed)

    def _tell_end(self, save: Save, now: int, failed: bool) -> None:
        save.ended_ns = now
        if save.event == PART:
            self._trace.queue("part_end", save=save.id, end_ns=now, bytes=save.sizes, failed=failed)
        else:
            self._trace.queue("end", save=save.id, end_ns=now, bytes=save.sizes, failed=failed)
        if failed:
            self.finished(save, now, failed=True)
        if save.event == PART:
            return
        if threading.get_ident() == self._stepping_thread():
            self._tell_state()
            self._updates.read_flags()

    @harmless
    def hold(self, save: Save, write: Write, content: Any = None) -> None:
        """The call has returned, but the file that it was given is open still: the save ends when that is closed."""
        self.add(content)
        self._local.save = None
        save.ended_ns = monotonic_ns()
        save.thread, save.updates = threading.get_ident(), self._updates.done
        self._held.setdefault(write, []).append(save)
        self.captured(save)

    @harmless
    def in_parts(self, write: Write) -> None:
        """An upload in parts has begun."""
        if self._files.knows(write.url):
            self._trace.write("storing", at_ns=monotonic_ns(), path=write.url)

    @harmless
    def stored(self, write: Write, size: int, text: str | None) -> None:
        """An object is in its store. `text`: of a pointer."""
        stores.end(write)
        if not self._files.knows(write.url):
            return
        now = monotonic_ns()
        self._trace.queue(
            "stored", at_ns=now, begun_ns=write.begun_ns, path=write.url, size=size, cut_off=write.cut_off
        )  # fmt: skip
        self._watcher.stored(write.url, size)
        self._files.stored(write.url, text)
        self._end_held(write, now, failed=False)
        self._trace.flush()
        for heard in self._stored:
            harmless(heard)()

    @harmless
    def not_stored(self, write: Write) -> None:
        """Its close has failed; fsspec may try again when nobody has the file any more."""
        self._end_held(write, monotonic_ns(), failed=True)

    def _end_held(self, write: Write, now: int, *, failed: bool) -> None:
        """Where training went on before the file was closed, it has waited for the call only."""
        for save in self._held.pop(write, ()):
            waited = save.thread == threading.get_ident() and save.updates == self._updates.done
            self._tell_end(save, now if waited else save.ended_ns or now, failed)
            self.finished(save, now, failed=failed)

    @harmless
    def add(self, content: Any) -> None:
        """This state is part of the save that this thread is inside of."""
        if self.outermost is not None and content is not None:
            self.outermost.add(bytes_by_type(content))

    @harmless
    def _tell_state(self) -> None:
        """Once an optimizer, at the end of its first save: that has waited for the device already."""
        optimizer = self._updates.first_optimizer()
        if optimizer is not None and id(optimizer) != self._told_state_of:
            self._told_state_of = id(optimizer)
            self._trace.queue("state", bytes=state_of(optimizer))

    @harmless
    def captured(self, save: Save | None) -> None:
        """The training may change its state now."""
        if save is not None:
            self._trace.queue("captured", save=save.id, at_ns=monotonic_ns())

    @harmless
    def finished(
        self, save: Save | None, at_ns: int | None = None, *, failed: bool = False
    ) -> None:
        """The engine says so, or that it has `failed`: then nothing that it says later counts."""
        save = save and (save.whole or save)
        if save is None or save.failed or (save.finished and not failed):
            return
        save.finished, save.failed = True, failed
        self._trace.queue(
            "finished",
            save=save.id,
            at_ns=at_ns or monotonic_ns(),
            thread=threading.current_thread().name,
            failed=failed,
        )
        if save in self._under_way:
            self._under_way.remove(save)
        if save.watched is not None:
            save.watched.finish()

    @harmless
    def written(self, save: Save) -> None:
        """As far as can be seen. Only the program knows whether it goes on, so its files are looked at now."""
        if save.watched is not None:
            save.watched.finish()

    def close(self) -> None:
        harmless(self._files.close)()
        harmless(self._watcher.close)()

    def renew(self) -> None:
        """In a forked child."""
        self._watcher.renew()
        self._files.renew()
        stores.renew()
        self._held.clear()
        self._local = threading.local()
        self._under_way.clear()
        self._told_state_of = None


def _covers(paths: list[str], path: str) -> bool:
    return any(path == one or path.startswith(one.rstrip(os.sep) + os.sep) for one in paths)
