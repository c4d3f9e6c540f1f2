"""The page cache: after an eviction a file is read from storage, and the kernel's counters show it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptbench.common import page_cache
from ckptbench.common.host import host_facts

SIZE = 8_000_000
MEMORY = Path("/dev/shm")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def file_in_memory() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    path = folder / "model.bin"
    path.write_bytes(os.urandom(SIZE))
    yield path
    shutil.rmtree(folder)


def keeps_all_in_memory(path: Path) -> bool:
    return host_facts(path)["checkpoint_file_system"] in {"tmpfs", "ramfs"}


def fetched_by_reading(path: Path) -> int:
    """Bytes that come from storage while this process reads the file."""
    before = page_cache.read_bytes()
    assert len(path.read_bytes()) == SIZE
    after = page_cache.read_bytes()
    assert before is not None
    assert after is not None
    return after - before


def test_what_was_just_written_is_in_memory(file: Path) -> None:
    assert page_cache.resident_bytes(file) == SIZE
    assert fetched_by_reading(file) < 0.1 * SIZE


def test_after_an_eviction_the_next_read_comes_from_storage_and_the_one_after_it_does_not(
    file: Path,
) -> None:
    page_cache.evict([file])
    if keeps_all_in_memory(file):
        assert page_cache.resident_bytes(file) == SIZE
        assert fetched_by_reading(file) == 0
        return
    assert page_cache.resident_bytes(file) < 0.05 * SIZE
    assert 0.9 * SIZE < fetched_by_reading(file) < 1.5 * SIZE
    assert page_cache.resident_bytes(file) == SIZE
    assert fetched_by_reading(file) < 0.1 * SIZE


def test_a_file_system_in_memory_keeps_its_files_and_the_counter_shows_that_nothing_was_fetched(
    file_in_memory: Path,
) -> None:
    assert keeps_all_in_memory(file_in_memory)
    page_cache.evict([file_in_memory])
    assert page_cache.resident_bytes(file_in_memory) == SIZE
    assert fetched_by_reading(file_in_memory) == 0


def test_every_file_is_evicted_and_keeps_its_bytes(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    other = tmp_path / "other.bin"
    other.write_bytes(content)
    page_cache.evict([file, other])
    if not keeps_all_in_memory(file):
        assert page_cache.resident_bytes(file) + page_cache.resident_bytes(other) < 0.05 * SIZE
    assert file.read_bytes() == other.read_bytes() == content


def test_an_empty_file_has_nothing_in_memory(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    page_cache.evict([tmp_path / "empty"])
    assert page_cache.resident_bytes(tmp_path / "empty") == 0


def test_without_the_kernels_counters_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object, **__: object) -> str:
        raise PermissionError("/proc/self/io")

    monkeypatch.setattr(Path, "read_text", hidden)
    assert page_cache.read_bytes() is None
