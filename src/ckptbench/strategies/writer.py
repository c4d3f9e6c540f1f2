"""The process that writes files in the background: `python -m ckptbench.strategies.writer MEMORY BYTES PARENT`.

MEMORY is the number of an open file descriptor, the shared memory of BYTES in which the rank, process PARENT, puts what is
to be written. Each line of standard input is one of these:

- `{"captured": ...}`: so many of the first bytes are there now. It may come in the middle of a write, which waits for it.
- `{"files": [{"path": ..., "spare": ..., "first": ..., "end": ...}, ...]}`: write these bytes of the memory to a new file,
  or over the spare one if it exists, then the next ones. The answer is a line of standard output, `{"checksums": [...]}` or
  `{"path": ..., "error": ...}`.

The process ends when its input ends, or its parent does. It does not import NumPy, because every rank starts one.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from ckptbench.checkpoints.checksum import Checksum
from ckptbench.common.direct import NO_DIRECT, open_direct
from ckptbench.common.processes import die_with_parent, ignore_stop_signals

SHORTEST_WRITE, LONGEST_WRITE = 8 << 20, 32 << 20
"""Bytes written at a time: so many as are captured, within these limits. Few long writes are faster than many."""
FAILED = -1
"""Instead of a number of captured bytes: the capture has failed."""


def main(memory: int, nbytes: int, parent: int) -> None:
    die_with_parent(parent)
    ignore_stop_signals()
    # Writing past the page cache takes page by page from here: they are all in the page tables now, not at the first save.
    with (
        mmap.mmap(memory, nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ) as source,
        memoryview(source) as content,
    ):
        capture = Capture(content)
        while request := _request():
            if "files" in request:
                print(json.dumps(_answer(capture, request["files"])), flush=True)
            else:
                capture.nbytes = request["captured"]


def _request() -> dict[str, Any]:
    """The next one; empty when the rank has closed its end."""
    line = sys.stdin.readline()
    request: dict[str, Any] = json.loads(line) if line else {}
    return request


class Capture:
    """The memory, and how far it is filled."""

    def __init__(self, content: memoryview) -> None:
        self.content = content
        self.nbytes = 0

    def chunks(self, first: int, end: int) -> Iterator[memoryview]:
        """These bytes of the memory, each part when it is filled. Raises OSError if one never is."""
        while first < end:
            self._await(min(first + SHORTEST_WRITE, end))
            last = min(self.nbytes, first + LONGEST_WRITE, end)
            if last < end:
                last -= (last - first) % SHORTEST_WRITE  # direct writes have whole blocks
            yield self.content[first:last]
            first = last

    def _await(self, nbytes: int) -> None:
        while FAILED < self.nbytes < nbytes:
            self.nbytes = _request().get("captured", FAILED)
        if self.nbytes == FAILED:
            raise OSError("the state was not captured to its end")


def _answer(capture: Capture, files: Iterable[dict[str, Any]]) -> dict[str, Any]:
    checksums = []
    with ThreadPoolExecutor(1) as hashing:
        for each in files:
            try:
                checksums.append(_write(capture, each, hashing))
            except OSError as error:
                return {"path": each["path"], "error": f"{type(error).__name__}: {error}"}
    return {"checksums": checksums}


def _write(capture: Capture, file: dict[str, Any], hashing: ThreadPoolExecutor) -> str:
    checksum, hashed = Checksum(), []
    first, end = file["first"], file["end"]
    with closing(File(file["path"], file["spare"], end - first)) as written:
        for chunk in capture.chunks(first, end):
            hashed.append(hashing.submit(checksum.update, chunk))
            written.write(chunk)
    for part in hashed:
        part.result()
    return checksum.hexdigest()


class File:
    """A file of a known size, written from its beginning, past the page cache where the file system allows it."""

    def __init__(self, path: str, spare: str, nbytes: int) -> None:
        """The file `spare` under its new name `path` if it can be taken, or else a new file."""
        take(spare, path)
        self._descriptor = open_direct(path)
        self._written = 0
        if os.fstat(self._descriptor).st_size != nbytes:
            os.ftruncate(self._descriptor, 0)

    def write(self, content: memoryview) -> None:
        """Write what follows. It is not synced. Raises OSError."""
        while content.nbytes:
            try:
                count = os.pwrite(self._descriptor, content, self._written)
            except OSError as error:
                if error.errno not in NO_DIRECT or not self._stop_direct():
                    raise
            else:
                content = content[count:]
                self._written += count

    def _stop_direct(self) -> bool:
        """Write through the page cache from now on. False: it was so before."""
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return bool(flags & os.O_DIRECT)

    def close(self) -> None:
        os.close(self._descriptor)


def take(spare: str, path: str) -> None:
    """Give the file `spare` its new name `path`, or make a new file where it is not there, is protected or cannot be written."""
    try:
        os.rename(spare, path)
    except OSError:
        pass  # a new file serves as well
    else:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW))
            return
        except OSError:
            os.unlink(path)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def write_file(path: str, spare: str, content: memoryview) -> None:
    """Write all of a file. It is not synced. Raises OSError."""
    with closing(File(path, spare, len(content))) as file:
        for first in range(0, len(content), LONGEST_WRITE):
            file.write(content[first : first + LONGEST_WRITE])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
