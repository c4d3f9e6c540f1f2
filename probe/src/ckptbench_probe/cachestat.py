"""What the kernel still holds of a file that it has not written to its storage: cachestat(2), Linux 6.5 and later.

A file without dirty pages is *written back*. That is not durable: a journal, or a cache in the device, may still lose it in a power cut.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

NUMBER = 451
"""Of the system call, on all architectures but Alpha (include/uapi/asm-generic/unistd.h of Linux)."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


@dataclass(frozen=True)
class Pages:
    """Of one file, in the page cache."""

    size_bytes: int
    cached: int
    unwritten: int
    """Dirty, or on their way."""


_LIBRARY = ctypes.CDLL(None, use_errno=True)


def pages(path: str) -> Pages:
    """Raises OSError where the file is gone, belongs to somebody else, or the kernel is too old."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = _Pages()
        whole = _Range(0, 0)
        failed = _LIBRARY.syscall(NUMBER, file, ctypes.byref(whole), ctypes.byref(found), 0)
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        size = os.fstat(file).st_size
        return Pages(size, found.cached, found.dirty + found.writeback)
    finally:
        os.close(file)
