"""What this process and those that it has started take, as the kernel says."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from ckptbench.run.events import Memory
from ckptbench.run.footprints import Footprint, Footprints, forget_peak
from ckptbench.run.recorder import Recorder
from ckptbench.run.trace import whole_events

SIZE = 64 << 20
ROUGHLY = SIZE // 4
"""What else a process may take or give back meanwhile."""


@contextmanager
def held(size: int) -> Iterator[None]:
    """Memory of its own, every page of it written. The memory of an array may be some that was freed and is still resident."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1
        yield


@contextmanager
def started(code: str, *, descriptors: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A process that has run this code, and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}\nprint(flush=True)\ninput()", *map(str, descriptors)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=descriptors,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate("\n")


def test_memory_that_is_taken_counts_and_when_it_is_given_back_only_in_the_peak() -> None:
    assert forget_peak()
    before = Footprint.now()
    with held(SIZE):
        with_it = Footprint.now()
    after = Footprint.now()
    assert with_it.bytes - before.bytes == pytest.approx(SIZE, abs=ROUGHLY)
    assert after.bytes - before.bytes == pytest.approx(0, abs=ROUGHLY)
    assert after.peak_bytes - before.bytes == pytest.approx(SIZE, abs=ROUGHLY)
    forget_peak()
    assert Footprint.now().peak_bytes - before.bytes == pytest.approx(0, abs=ROUGHLY)


def test_a_kernel_without_a_mark_that_can_be_reset_gives_the_peak_of_the_whole_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Footprint.now()
    with held(SIZE):
        pass
    monkeypatch.setattr("ckptbench.run.footprints.CLEAR_REFS", "/proc/self/no-such-file")
    assert not forget_peak()
    assert Footprint.now().peak_bytes - before.bytes >= SIZE - ROUGHLY


def test_the_memory_of_processes_counts_and_that_of_their_processes() -> None:
    inner = f"held = bytearray(b'x') * {SIZE}; print(flush=True); input()"
    code = (
        "import subprocess, sys\n"
        f'child = subprocess.Popen([sys.executable, "-c", {inner!r}], stdout=subprocess.PIPE)\n'
        "child.stdout.readline()"
    )
    before = Footprint.now()
    with started(code):
        now = Footprint.now()
    assert now.bytes - before.bytes == pytest.approx(SIZE, abs=ROUGHLY)
    assert now.peak_bytes >= now.bytes
    assert (now.processes - before.processes, now.threads - before.threads) == (2, 2)


def test_shared_memory_counts_once() -> None:
    descriptor = os.memfd_create("test")
    os.truncate(descriptor, SIZE)
    before = Footprint.now()
    with mmap.mmap(descriptor, SIZE) as memory:
        memory.write(b"x" * SIZE)
        code = f"import mmap, sys; bytes(mmap.mmap(int(sys.argv[1]), {SIZE}))"
        with started(code, descriptors=(descriptor,)):
            now = Footprint.now()
    os.close(descriptor)
    assert now.shared_bytes - before.shared_bytes == pytest.approx(SIZE, abs=ROUGHLY)
    assert now.bytes - before.bytes == pytest.approx(SIZE, abs=2 * ROUGHLY)


def test_threads_count_and_a_process_that_was_not_waited_for() -> None:
    before, go = Footprint.now(), threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()  # it has ended, or is about to
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    now = Footprint.now()
    go.set(), thread.join(), child.communicate()
    assert now.processes - before.processes == 1
    assert now.threads - before.threads == 2
    assert Footprint.now().processes == before.processes


def test_a_sample_is_an_event_of_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace-0.jsonl"
    recorder = Recorder(path)
    footprints, part = Footprints(recorder), Future[int]()
    footprints.sample("before", 3)
    looked = footprints.look_after(part, "written", 3)
    assert not looked.done()
    part.set_result(1)
    looked.result()
    found = list(whole_events(path))
    assert all(isinstance(event, Memory) and event.bytes > 0 for event in found)
    assert [getattr(event, "when", "") for event in found] == ["before", "written"]


def test_a_sample_that_cannot_be_written_is_an_error_of_who_waits_for_it(tmp_path: Path) -> None:
    recorder, part = Recorder(tmp_path / "trace-0.jsonl"), Future[int]()
    looked = Footprints(recorder).look_after(part, "written", 3)
    recorder.close()
    part.set_result(1)
    with pytest.raises(ValueError, match="closed file"):
        looked.result()
