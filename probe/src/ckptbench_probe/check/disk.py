"""The changes to a file system that a training has made, and which of them are on the disk for certain.

What ext4 and XFS promise after a power cut:
- Names, sizes that a program sets, and removals go through a journal: the disk has all of them up to some moment, and none after it (Documentation/filesystems/ext4/journal.rst;
  Documentation/filesystems/xfs/xfs-delayed-logging-design.rst).
- fsync of a file: its data, and the journal up to its newest own change; not its later name. That takes an fsync of its folder (fsync(2)).
- sync_file_range promises nothing (sync_file_range(2), "Warning").
- Data that no sync has forced may be missing as a whole, or from some page on, or pages in the middle may read as zeros: delayed allocation writes them later and in any order
  (ext4.rst, "Features"; XFS FAQ, "Why do I see binary NULLS in some files after recovery"). A file that grows has its new size only after all names that were made before.
- ext4 alone, by auto_da_alloc: a rename that replaces a file, and the close of one that was emptied, write the data first (Documentation/admin-guide/ext4.rst). XFS does not promise that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Union

from ckptbench_probe.check.file_calls import Text
from ckptbench_probe.files import after_rename

CREATE, FOLDER, LINK, NAME, RENAME, REMOVE, SIZE, DATA = "create", "folder", "link", "name", "rename", "remove", "size", "data"  # fmt: skip
EXT4, XFS = "ext4", "XFS"
Content = Union[bytes, Text]


@dataclass(frozen=True)
class Change:
    at: int
    """Place in the order of all calls."""
    kind: str
    inode: int
    path: str
    to: str = ""
    """New name, or what a link names."""
    touches: tuple[int, ...] = ()
    """Inodes whose fsync forces it: its own, and the folder's where it changes a name."""
    offset: int = 0
    """Of data; the size, where that is set."""
    content: tuple[Content, ...] = ()
    size: int = 0
    synced: bool = False
    """By O_SYNC."""
    at_ns: int = 0


@dataclass(frozen=True)
class Sync:
    entered: int
    returned: int
    inode: int | None
    """None: of all."""


@dataclass(frozen=True)
class Flush:
    """On ext4 it writes the data that the inode has until then."""

    at: int
    inode: int
    by_rename: bool


@dataclass
class Recorded:
    """All changes of a run, in their order."""

    changes: list[Change] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    """The first look at each path whose name a check has made up."""
    unseen: dict[int, str] = field(default_factory=dict)
    """Inodes with content that strace does not show, and a name of each."""
    end: int = 0


def filled(changes: list[Change], log: BinaryIO) -> bytes:
    """The content that these changes give a file."""
    content = bytearray()
    for one in changes:
        if one.kind == SIZE:
            content[one.offset :] = bytes(max(0, one.offset - len(content)))
        else:
            content.extend(bytes(max(0, one.offset - len(content))))
            data = b"".join(part if isinstance(part, bytes) else part.read(log) for part in one.content)  # fmt: skip
            content[one.offset : one.offset + one.size] = data[: one.size]
    return bytes(content)


def as_on_disk(found: Recorded, names: dict[str, int], root: Path, log: BinaryIO) -> str:
    """Take the content of files that strace has not seen whole, as of those mapped into memory, from the disk. Returns what cannot be known; empty where all is."""
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        inode = names.get(str(path))
        if inode is None:
            return f"strace has not seen how {path.relative_to(root)} was made"
        own = [one for one in found.changes if one.inode == inode and one.kind in (SIZE, DATA)]
        on_disk = path.read_bytes()
        found.unseen.pop(inode, None)
        if filled(own, log) == on_disk:
            continue
        if not own:
            return f"strace has not seen who wrote {path.relative_to(root)}"
        replaced = {one.at for one in own}
        whole = replace(own[-1], kind=DATA, offset=0, content=(on_disk,), size=len(on_disk))
        found.changes = [
            whole if one is own[-1] else one
            for one in found.changes
            if one is own[-1] or one.at not in replaced
        ]
    removed = [path for path in found.unseen.values() if path.startswith(str(root) + os.sep)]
    return f"strace has not seen the content of {removed[0]}, which is gone" if removed else ""


def renamed(names: dict[str, int], source: str, target: str) -> dict[str, int]:
    """With all that lies below a folder."""
    kept = {path: inode for path, inode in names.items() if path != target}
    return {after_rename(path, source, target): inode for path, inode in kept.items()}
