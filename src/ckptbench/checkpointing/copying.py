"""Memory from which a file is written past the page cache, and the native copy into it: `copying.c`.

The library is compiled when the environment is made, or when pip installs ckptbench. Where there was no compiler, NumPy copies.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import mmap
import operator
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.checksum import BLOCK_BYTES, of_blocks

log = logging.getLogger(__name__)

LIBRARY = Path(__file__).with_name("libcopying.so")
WAY = "CKPTBENCH_COPY"
"""The environment variable that says `numpy` to do without the library."""
DIGEST_BYTES = 16
FEWEST_BLOCKS = 8
"""Of fewer blocks one thread copies all: it takes less time than until the others have begun."""
OPENMP = "/torch/lib/libgomp"
"""The part of the path of the OpenMP that PyTorch brings and computes with."""


class _Job(ctypes.Structure):
    _fields_ = (
        ("sources", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("nbytes", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("target", ctypes.c_void_p),
        ("digests", ctypes.c_void_p),
        ("next", ctypes.c_uint64),
    )


class NativeCopy:
    """The copy of pieces of memory into `target`, which they fill one after the other. Each has its length in `lengths`.

    The length of `target` is a multiple of 1024.
    """

    def __init__(self, target: NDArray[np.uint8], lengths: Sequence[int]) -> None:
        self._target = target
        self._lengths = list(lengths)
        self._sources: list[NDArray[np.uint8] | None] = []
        self._addresses = np.empty(0, np.uint64)
        self._starts = np.array([0, *itertools.accumulate(lengths)], np.uint64)
        assert target.nbytes == self._starts[-1]
        assert target.nbytes % 1024 == 0

    def copy(self, sources: Sequence[NDArray[np.uint8] | None]) -> str:
        """Copy them, and return the checksum of `target`. None: this piece lies in its place already.

        Call it in the thread that trains: where PyTorch computes, its threads share the copy. Threads of our own would be more
        than there are cores, and each step would be slower.
        """
        self._find(sources)
        digests = np.empty(-(-self._target.nbytes // BLOCK_BYTES) * DIGEST_BYTES, np.uint8)
        job = _Job(
            sources=self._addresses.ctypes.data,
            starts=self._starts.ctypes.data,
            nbytes=self._target.nbytes,
            block=BLOCK_BYTES,
            target=self._target.ctypes.data,
            digests=digests.ctypes.data,
            next=0,
        )
        library, openmp = _library(), _openmp()
        assert library is not None
        if openmp is None or digests.nbytes < FEWEST_BLOCKS * DIGEST_BYTES:
            library.work(ctypes.byref(job))
        else:
            as_many_as_ever = 0
            openmp.GOMP_parallel(library.work, ctypes.byref(job), as_many_as_ever, 0)
        return of_blocks(digests.tobytes())

    def _find(self, sources: Sequence[NDArray[np.uint8] | None]) -> None:
        """Look up where they lie, unless they are the same arrays as last time."""
        if len(sources) == len(self._sources) and all(map(operator.is_, sources, self._sources)):
            return
        parts = zip(sources, self._lengths, strict=True)
        assert all(source is None or source.nbytes == length for source, length in parts)
        places = self._target.ctypes.data + self._starts
        found = zip(sources, places.tolist(), strict=False)
        self._addresses = np.array(
            [place if source is None else source.ctypes.data for source, place in found], np.uint64
        )
        self._sources = list(sources)


def has_c_copy() -> bool:
    """Whether the library is there. The log says so once if it is not."""
    return _library() is not None


@functools.cache
def _library() -> ctypes.CDLL | None:
    if os.environ.get(WAY) == "numpy":
        log.info("%s is numpy: checkpoints are copied without the native library", WAY)
        return None
    try:
        return ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        log.warning(
            "checkpoints are copied by NumPy, which costs training more (%s): install a C compiler, and make the environment again",
            error,
        )
        return None


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP whose threads train. None: the framework has none of which we know."""
    paths = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()
    }
    found = [path for path in paths if OPENMP in path]
    return ctypes.CDLL(found[0]) if found else None


def kept_memory(nbytes: int) -> NDArray[np.uint8]:
    """Memory for all saves, shape (nbytes,), in huge pages if the kernel has them. Every page is touched.

    The kernel writes from huge pages past the page cache with a fifth of the processor time.
    """
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(memory, np.uint8)
    found[:] = 0
    return found
