"""Shared memory that outlives its processes: segments have names in /dev/shm, and only these keep them after a kill."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ckptbench.common.removal import remove_or_warn

SEGMENTS = Path("/dev/shm")
MPICH = "mpich_"
"""How the names of MPICH's segments begin: `mpich_shm_<world>_<node>`."""
Inode = tuple[str, str]
"""Device and inode of a file, as `/proc/<process>/maps` writes them."""
_DELETED = " (deleted)"
"""The kernel's mark behind the path of a mapped file that has no name any more."""


def forget_names(prefix: str) -> list[Path]:
    """Remove the names of the segments that this process has mapped and whose names begin with `prefix`.

    A segment without a name serves the processes that have mapped it as before, and the kernel frees it when the last
    of them has ended, however it ends. Call it when every process that needs a segment has mapped it: none can find it
    afterwards. Returns the paths that are gone. Another process may have removed one at the same time.
    """
    mapped = {path for *_, path in _mappings(Path("/proc/self")) if not path.endswith(_DELETED)}
    paths = sorted(path for path in mapped if path.startswith(f"{SEGMENTS}/{prefix}"))
    return _remove(map(Path, paths))


def named_segments(prefix: str, *, older_than_s: float = 0.0) -> set[Path]:
    """This user's segments on this node whose names begin with `prefix`, and that nobody has changed for so long."""
    found = set()
    for path in SEGMENTS.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):  # its process has removed it meanwhile
            status = path.lstat()
            own = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
            if own and time.time() - status.st_mtime >= older_than_s:
                found.add(path)
    return found


def remove_unused(segments: Iterable[Path]) -> list[Path]:
    """Remove those of the segments that no process of this node has open or mapped. Returns their paths.

    The process that makes a segment has it open until it has mapped it, so one that is just being made stays. A segment is
    known by its inode: a process may have mapped it under another name, as the one that makes a named semaphore has.
    """
    unused = {}
    for path in segments:
        with suppress(FileNotFoundError):
            unused[_identity(path.lstat())] = path
    for process in Path("/proc").glob("[0-9]*"):
        if not unused:
            break
        # In this order: a process that has closed a segment between the two looks has mapped it.
        used = _open(process)
        used |= {(device, inode) for _, _, _, device, inode, _ in _mappings(process)}
        for each in used:
            unused.pop(each, None)
    return _remove(sorted(unused.values()))


def _remove(paths: Iterable[Path]) -> list[Path]:
    """Those that are gone. One that cannot be removed holds memory, but nobody needs it to go."""
    return [path for path in paths if remove_or_warn(path)]


def _identity(status: os.stat_result) -> Inode:
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)


def _open(process: Path) -> set[Inode]:
    """The segments that a process has open. None are seen of another user's, who cannot open this user's."""
    found = set()
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        for each in (process / "fd").iterdir():
            with suppress(FileNotFoundError):
                if str(each.readlink()).startswith(f"{SEGMENTS}/"):
                    found.add(_identity(each.stat()))
    return found


def _mappings(process: Path) -> list[list[str]]:
    """Address, permissions, offset, device, inode and path of the files that a process has mapped."""
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        lines = (process / "maps").read_text(encoding="utf-8", errors="surrogateescape")
        fields = (line.split(maxsplit=5) for line in lines.splitlines())
        return [each for each in fields if len(each) == 6]  # anonymous memory has no path
    return []
