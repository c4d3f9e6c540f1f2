"""What a power cut leaves of a folder: which changes are on the disk, and the folder made from them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from ckptbench_probe.check.disk import (  # fmt: skip
    DATA,
    EXT4,
    FOLDER,
    LINK,
    NAME,
    REMOVE,
    RENAME,
    SIZE,
    Change,
    Recorded,
    filled,
    renamed,
)

EMPTY, HALF, ZEROS = "empty", "half", "zeros"
"""What is there of the data that no sync has forced: nothing, its first half, or all but pages in the middle, which read as zeros."""
PAGE = 4096
Key = tuple[object, ...]


@dataclass(frozen=True)
class Left:
    cut: int
    """What came later was not done."""
    until: int
    """Names and sizes are on the disk up to here, and none after it."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Inodes whose unforced data is missing, and how."""


class Storage:
    """A file system of this kind, on which all that came before the window is on the disk."""

    def __init__(self, found: Recorded, system: str, root: Path, window: tuple[int, int]) -> None:
        self.system, self.root = system, str(root)
        self.begin, self.end = window
        self._found = found
        self._names: dict[int, dict[str, Change]] = {}
        self._data: dict[int, list[Change]] = defaultdict(list)
        for one in found.changes:
            if one.kind in (SIZE, DATA):
                self._data[one.inode].append(one)

    @cached_property
    def names_changed(self) -> list[Change]:
        """In the window, with sizes that the program has set."""
        return [one for one in self._found.changes if one.kind != DATA and self.begin < one.at <= self.end]  # fmt: skip

    @cached_property
    def changed(self) -> list[Change]:
        """What was done in the window below the root."""
        return [one for one in self._found.changes if self.begin < one.at <= self.end and (self.is_inside(one.path) or self.is_inside(one.to))]  # fmt: skip

    def is_inside(self, path: str) -> bool:
        return path.startswith(self.root + os.sep)

    def forced_until(self, cut: int) -> int:
        """Names up to here are on the disk in any case."""
        forced = self.begin
        for sync in self._found.syncs:
            if sync.returned <= cut and sync.entered > self.begin:
                own = (one.at for one in self._found.changes if one.at < sync.entered and sync.inode in one.touches)  # fmt: skip
                forced = max(forced, sync.entered if sync.inode is None else max(own, default=0))
        return forced

    def _is_forced(self, data: Change, left: Left) -> bool:
        if data.at <= self.begin or data.synced:
            return True
        if any(data.at < sync.entered and sync.returned <= left.cut and sync.inode in (None, data.inode) for sync in self._found.syncs):  # fmt: skip
            return True
        return self.system == EXT4 and any(
            data.at <= flush.at <= (left.until if flush.by_rename else left.cut)
            for flush in self._found.flushes
            if flush.inode == data.inode
        )

    def names(self, until: int) -> dict[str, Change]:
        """By path, what has made the inode, with links among them."""
        if until not in self._names:
            self._names[until] = self._replayed(until)
        return self._names[until]

    def _replayed(self, until: int) -> dict[str, Change]:
        made: dict[int, Change] = {}
        names: dict[str, int] = {}
        for one in self._found.changes:
            if one.at > until:
                break
            if one.kind == RENAME:
                names = renamed(names, one.path, one.to)
            elif one.kind == REMOVE:
                names.pop(one.path, None)
            elif one.kind not in (SIZE, DATA):
                made[one.inode] = made[one.inode] if one.kind == NAME else one
                names[one.path] = one.inode
        return {path: made[inode] for path, inode in sorted(names.items()) if self.is_inside(path)}

    def _changes(self, inode: int, left: Left) -> tuple[list[Change], list[Change]]:
        """Those of its content that are forced, and all that may be on the disk."""
        forced, every = [], []
        for one in self._data[inode]:
            if one.at > left.cut or (one.kind == SIZE and one.at > left.until):
                break  # what follows needs that size
            if one.kind == SIZE or self._is_forced(one, left):
                forced.append(one)
                every.append(one)
            elif one.at <= left.until or self._may_be_early(one, left.until):
                every.append(one)
        return forced, every

    def _may_be_early(self, data: Change, until: int) -> bool:
        """Before the names that were made before it: where none was, or where it fits into what the file had."""
        if not any(until < one.at < data.at for one in self.names_changed):
            return True
        before = [one for one in self._data[data.inode] if one.at <= self.begin]
        size = max((one.offset + one.size for one in before), default=0)
        resized = any(one.kind == SIZE and self.begin < one.at < data.at for one in self._data[data.inode])  # fmt: skip
        return not resized and data.offset + data.size <= size

    def unforced(self, left: Left) -> dict[str, int]:
        """Files with data that may be missing, and its bytes."""
        found = {}
        for path, made in self.names(left.until).items():
            forced, every = self._changes(made.inode, left)
            if len(every) > len(forced):
                found[path] = sum(one.size for one in every) - sum(one.size for one in forced)
        return found

    def inode(self, path: str, until: int) -> int:
        return self.names(until)[path].inode

    def size(self, path: str, left: Left) -> int:
        """Of a file whose data is `EMPTY`."""
        forced, _ = self._changes(self.inode(path, left.until), left)
        size = 0
        for one in forced:
            size = one.offset if one.kind == SIZE else max(size, one.offset + one.size)
        return size

    def key(self, left: Left) -> Key:
        """The same of two whose folders are the same."""
        found: list[Key] = []
        for path, made in self.names(left.until).items():
            forced, every = self._changes(made.inode, left)
            how = left.lost.get(made.inode, "") if len(every) > len(forced) else ""
            own = forced if how == EMPTY else every
            found.append((path, made.inode, "" if how == EMPTY else how, *(one.at for one in own)))
        return tuple(found)

    def make(self, left: Left, at: Path, log: BinaryIO) -> None:
        """The folder, with the times of its files."""
        at.mkdir(parents=True)
        times: dict[Path, int] = {}
        for path, made in self.names(left.until).items():
            target, made_ns = at / os.path.relpath(path, self.root), made.at_ns
            target.parent.mkdir(parents=True, exist_ok=True)
            if made.kind == FOLDER:
                target.mkdir(exist_ok=True)
            elif made.kind == LINK:
                target.symlink_to(made.to)
            else:
                forced, every = self._changes(made.inode, left)
                target.write_bytes(_content(forced, every, left.lost.get(made.inode, ""), log))
                made_ns = max([made_ns, *(one.at_ns for one in every)])
            if made.kind != LINK:
                times[target] = max(times.get(target, 0), made_ns)
            times[target.parent] = max(times.get(target.parent, 0), made.at_ns)
        for target, at_ns in times.items():
            os.utime(target, ns=(at_ns, at_ns))


def _content(forced: list[Change], every: list[Change], how: str, log: BinaryIO) -> bytes:
    if how == EMPTY:
        return filled(forced, log)
    whole = filled(every, log)
    if not how or len(every) == len(forced):
        return whole
    before = filled(forced, log)
    if how == HALF:
        middle = -(-len(whole) // PAGE) // 2 * PAGE
        return whole[:middle] + before[middle:]
    begin, end = middle_pages(len(whole))
    return whole[:begin] + before[begin:end].ljust(end - begin, b"\0") + whole[end:]


def middle_pages(size: int) -> tuple[int, int]:
    """From the half to the last page, which is there, and of two pages the first."""
    pages = -(-size // PAGE)
    begin, end = pages // 2, pages - 1
    return (begin * PAGE, end * PAGE) if begin < end else (0, end * PAGE)
