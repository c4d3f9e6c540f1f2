"""The kernel's page cache: drop files from it, and find out whether a read came from storage.

A restore is cold if `evict` dropped the checkpoint from the page cache, and `read_bytes` shows that as many bytes came
from storage as the checkpoint has. `read_bytes` hardly rises where eviction is impossible (on tmpfs, which always keeps
its files in memory, or while another process maps the files) and where the kernel does not count (on some network file
systems). Then the restore is not shown to be cold. The caches of file servers and disks cannot be dropped from here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path


def evict(paths: Iterable[Path]) -> None:
    """Write these files to storage and drop them from the page cache. Raises OSError."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages not yet written to storage cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_bytes(path: Path) -> int:
    """How many bytes of a file the page cache holds: whole pages, the last one up to the end of the file.

    For a user who may not write the file the kernel reports all pages as held. Raises OSError.
    """
    size = path.stat().st_size
    if size == 0:
        return 0
    pages = -(-size // mmap.PAGESIZE)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped,
    ):
        resident = _mincore(mapped, size, pages)
    return min(size, mmap.PAGESIZE * sum(page & 1 for page in resident))


def read_bytes() -> int | None:
    """How many bytes this process has fetched from storage so far; None if the kernel does not tell.

    The number comes from /proc/self/io. It includes all threads and mapped files, but not reads that the page cache
    served.
    """
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:  # the kernel lacks the counters, or a container hides them
        return None
    counters = dict(line.split(": ") for line in lines)
    return int(counters["read_bytes"])


def _mincore(mapped: mmap.mmap, size: int, pages: int) -> bytes:
    """One byte for each page; its lowest bit is 1 if the page is in memory: mincore(2)."""
    flags = (ctypes.c_ubyte * pages)()
    start = ctypes.c_char.from_buffer(mapped)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        failed = library.mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), flags
        )
    finally:
        del start  # otherwise the map cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed")
    return bytes(flags)
