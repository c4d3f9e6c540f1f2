"""Shared memory: a segment without a name serves on, and is freed with its last process."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptbench.machine.shared_memory import forget_names

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
