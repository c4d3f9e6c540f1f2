"""The kernel's page cache: put files out of it, and see that a read came from storage.

A restore is cold when `evict` put the checkpoint out of this host's memory, and `read_bytes` shows that loading
it fetched as many bytes as it has. Where eviction cannot work (tmpfs, which keeps its files in memory for good;
another process that maps them) or the kernel does not count (some network file systems), `read_bytes` hardly
rises, and the restore is not shown to be cold. Caches below the kernel's (a file server's, a disk's) are out of reach.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path


def evict(paths: Iterable[Path]) -> None:
    """Put these files out of the page cache, what was not yet on storage after it is. Raises OSError."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are still to be written cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_bytes(path: Path) -> int:
    """How many bytes of a file the page cache holds, in whole pages but for the end of the file.

    To a user who may not write the file the kernel tells nothing and shows all of it. Raises OSError.
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
    """How many bytes this process has had fetched from storage so far; None where the kernel does not say.

    From /proc/self/io: reads that the page cache served are not in it; all threads and mapped files are.
    """
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:  # built without the counters, or hidden by a container
        return None
    counters = dict(line.split(": ") for line in lines)
    return int(counters["read_bytes"])


def _mincore(mapped: mmap.mmap, size: int, pages: int) -> bytes:
    """One byte a page, whose lowest bit says that the page is in memory: mincore(2)."""
    flags = (ctypes.c_ubyte * pages)()
    start = ctypes.c_char.from_buffer(mapped)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        failed = library.mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), flags
        )
    finally:
        del start  # or the map could not be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed")
    return bytes(flags)
