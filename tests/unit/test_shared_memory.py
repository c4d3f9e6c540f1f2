"""Shared memory: a segment without a name serves on and is freed with its last process, and one in use keeps its name."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from ckptbench.common.processes import living_with
from ckptbench.common.shared_memory import forget_names, named_segments, remove_unused
from ckptbench.launch import ranks
from ckptbench.run.control.variables import TOKEN

PREFIX = f"ckptbench_test_{os.getpid()}_"


@pytest.fixture
def segments() -> Iterator[list[Path]]:
    """Three segments in shared memory: two with the prefix, one with another."""
    paths = [Path("/dev/shm", name) for name in (f"{PREFIX}a", f"{PREFIX}b", f"other_{PREFIX}")]
    for path in paths:
        path.write_bytes(b"before".ljust(mmap.PAGESIZE))
    yield paths
    for path in paths:
        path.unlink(missing_ok=True)


def test_only_what_this_process_has_mapped_under_the_prefix_loses_its_name(
    segments: list[Path],
) -> None:
    mine, not_mapped, of_another_prefix = segments
    with (
        mine.open("r+b") as file,
        of_another_prefix.open("r+b") as other,
        mmap.mmap(file.fileno(), 0) as mapped,
        mmap.mmap(other.fileno(), 0),
    ):
        assert forget_names(PREFIX) == [mine]
        assert not mine.exists()
        assert not_mapped.exists()
        assert of_another_prefix.exists()
        mapped[:5] = b"after"
        assert mapped[:6] == b"aftere"
        assert forget_names(PREFIX) == []


def test_a_name_that_another_rank_has_removed_is_no_error(segments: list[Path]) -> None:
    with segments[0].open("r+b") as file, mmap.mmap(file.fileno(), 0):
        segments[0].unlink()
        assert forget_names(PREFIX) == []


@contextmanager
def holding(path: Path, *, how: str = "mapped", token: str = "") -> Iterator[IO[bytes]]:
    """A process that has the segment open or mapped. It ends when it reads a line, or its input is closed."""
    code = f"{HOLD[how].format(path=str(path))}\nprint('held', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, TOKEN: token},
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        yield process.stdin


HOLD = {
    "open": "segment = open({path!r}, 'r+b')",
    "mapped": "with open({path!r}, 'r+b') as file: segment = __import__('mmap').mmap(file.fileno(), 0)",
    # As glibc makes a named semaphore: what the process has mapped has another name, and that is gone.
    "mapped before it was named": (
        "import mmap, os\n"
        "os.unlink({path!r})\n"
        "with open({path!r} + '-', 'x+b') as file:\n"
        "    os.truncate(file.fileno(), 4096)\n"
        "    segment = mmap.mmap(file.fileno(), 0)\n"
        "    os.link({path!r} + '-', {path!r})\n"
        "    os.unlink({path!r} + '-')"
    ),
}


@pytest.mark.parametrize("how", HOLD)
def test_what_another_process_has_open_or_mapped_stays_until_that_has_ended(
    segments: list[Path], how: str
) -> None:
    with holding(segments[0], how=how):
        assert remove_unused(segments[:2]) == [segments[1]]
        assert segments[0].exists()
    assert remove_unused(segments[:1]) == [segments[0]]
    assert not segments[0].exists()
    assert segments[2].exists()


def test_only_this_users_segments_of_the_prefix_and_the_age_are_named(
    segments: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named_segments(PREFIX) == set(segments[:2])
    long_ago = segments[0].stat().st_mtime - 1000
    os.utime(segments[0], (long_ago, long_ago))
    assert named_segments(PREFIX, older_than_s=900) == {segments[0]}
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert named_segments(PREFIX) == set()


def test_the_launcher_removes_what_its_ranks_have_left_and_nothing_else(
    segments: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "MPICH", PREFIX)
    earlier, of_another_run = segments[:2]
    of_another_run.unlink()
    left = earlier.with_name(f"{PREFIX}left")
    with ranks._segments_removed("the token of this run"):
        left.write_bytes(bytes(mmap.PAGESIZE))
        of_another_run.write_bytes(bytes(mmap.PAGESIZE))
        stack = ExitStack()
        stack.enter_context(holding(of_another_run, token="another"))
        own = stack.enter_context(holding(left, token="the token of this run"))
        assert len(living_with(TOKEN, "the token of this run")) == 1
        # The rank ends after mpiexec has: the launcher waits for it.
        looked = threading.Event()
        monkeypatch.setattr(
            ranks, "living_with", lambda *each: (looked.set(), living_with(*each))[1]
        )
        threading.Thread(target=lambda: (looked.wait(), own.close()), daemon=True).start()
    with stack:
        assert not left.exists()
        assert earlier.exists()
        assert of_another_run.exists()
