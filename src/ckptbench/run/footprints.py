"""Samples of the memory, threads and processes of a rank and of all that it has started, written outside all measured times.

Everything is read from `/proc`, as Linux counts it. One sample takes about 30 microseconds, and 15 more for each thread of the
process, as Linux lists the children of every thread apart.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from ckptbench.common.clock import clock
from ckptbench.run.events import Memory, MemoryMoment
from ckptbench.run.recorder import Recorder

FIELDS = (b"VmHWM", b"RssAnon", b"RssFile", b"RssShmem", b"Threads")
"""Lines of `/proc/<process>/status` that are read: kB, but for the number of threads. A process that has ended and was not
waited for has threads alone."""
KILOBYTE = 1024
CLEAR_REFS, RESET_PEAK = "/proc/self/clear_refs", b"5"
"""File, and what to write there to set the high-water mark of resident memory to what is resident now (proc(5))."""


class Footprints:
    """Takes the samples of one rank. Any thread may call it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def sample(self, when: MemoryMoment, step: int, gpu_peak_bytes: int | None = None) -> None:
        """Take a sample now and write it, with the peak of the GPU's memory where the framework says it."""
        now = dataclasses.asdict(Footprint.now())
        at_ns = clock()
        self._recorder.write(
            Memory(when=when, step=step, at_ns=at_ns, gpu_peak_bytes=gpu_peak_bytes, **now)
        )

    def look_after(self, part: Future[Any], when: MemoryMoment, step: int) -> Future[None]:
        """Take a sample when `part` is done, in the thread that ends it. The result is done when the sample is written."""
        looked: Future[None] = Future()

        def look(_: Future[Any]) -> None:
            try:
                self.sample(when, step)
            except Exception as error:  # noqa: BLE001 (whoever waits for the sample raises it)
                looked.set_exception(error)
            else:
                looked.set_result(None)

        part.add_done_callback(look)
        return looked


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Of this process and all that it has started, and that these have started."""

    bytes: int
    """Their anonymous memory that is resident, and the shared memory."""
    shared_bytes: int
    """Of `bytes`, shared memory: that of the process with the most of it, as processes share the same."""
    peak_bytes: int
    """The largest `bytes` since the last call of `forget_peak`. The memory of other processes counts as it is now."""
    threads: int
    processes: int
    """Without this one."""

    @classmethod
    def now(cls) -> Footprint:
        own = _status("/proc/self")
        others = [_status(f"/proc/{child}") for child in descendants("/proc/self")]
        shared = max(status[b"RssShmem"] for status in (own, *others))
        total = sum(status[b"RssAnon"] for status in (own, *others)) + shared
        # The mark is of all that is resident, files too. They are taken to be as large then as now.
        grown = own[b"VmHWM"] - (own[b"RssAnon"] + own[b"RssFile"] + own[b"RssShmem"])
        return cls(
            bytes=total * KILOBYTE,
            shared_bytes=shared * KILOBYTE,
            peak_bytes=(total + max(0, grown)) * KILOBYTE,
            threads=sum(status[b"Threads"] for status in (own, *others)),
            processes=len(others),
        )


def forget_peak() -> bool:
    """Let the next peak be that from now on. Returns whether the kernel can: if not, peaks are of the whole process so far."""
    try:
        with open(CLEAR_REFS, "wb", buffering=0) as file:
            file.write(RESET_PEAK)
    except OSError:
        return False
    return True


def _status(process: str) -> dict[bytes, int]:
    """The numbers of FIELDS; 0 where the process has ended."""
    found = dict.fromkeys(FIELDS, 0)
    for line in _content(f"{process}/status").split(b"\n"):
        name, _, value = line.partition(b":")
        if name in found:
            found[name] = int(value.split()[0])
    return found


def descendants(process: str) -> Iterator[int]:
    """Processes that it has started, and that these have, without those that have lost their parent."""
    try:
        threads = os.listdir(f"{process}/task")
    except FileNotFoundError:  # it has just ended
        return
    for thread in threads:
        for child in _content(f"{process}/task/{thread}/children").split():
            yield int(child)
            yield from descendants(f"/proc/{int(child)}")


def _content(path: str) -> bytes:
    """Nothing if process or thread has just ended."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""
