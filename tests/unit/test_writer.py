"""Files that are written past the page cache."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from ckptbench.checkpointing.copying import kept_memory
from ckptbench.common.files import write_file

BYTES = 5 * 4096
PWRITE = os.pwrite


@pytest.fixture
def content() -> memoryview:
    memory = kept_memory(BYTES)
    memory[:] = [byte % 251 for byte in range(BYTES)]
    return memory.data


def write(folder: Path, content: memoryview) -> bytes:
    write_file(str(folder / "new"), str(folder / "recycled"), content)
    return (folder / "new").read_bytes()


@pytest.mark.parametrize("size", [None, BYTES, 3 * BYTES, 7], ids=str)
def test_all_of_a_file_is_the_content_whatever_the_recycled_file_was(
    size: int | None, tmp_path: Path, content: memoryview
) -> None:
    if size is not None:
        (tmp_path / "recycled").write_bytes(b"x" * size)
    assert write(tmp_path, content) == content
    assert not (tmp_path / "recycled").exists()


def test_a_spare_file_that_somebody_keeps_under_another_name_stays_as_it_is(
    tmp_path: Path, content: memoryview
) -> None:
    """As by `cp -al`."""
    (tmp_path / "spare").write_bytes(b"old")
    (tmp_path / "kept").hardlink_to(tmp_path / "spare")
    assert write(tmp_path, content) == content
    assert (tmp_path / "kept").read_bytes() == b"old"


def test_what_the_kernel_has_left_is_written_next(
    tmp_path: Path, content: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda file, left, at: PWRITE(file, left[:4096], at))
    assert write(tmp_path, content) == content


def test_where_direct_writes_are_refused_it_goes_through_the_page_cache(
    tmp_path: Path, content: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, left: memoryview, at: int) -> int:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return PWRITE(file, left, at)

    monkeypatch.setattr(os, "pwrite", refuse)
    assert write(tmp_path, content) == content


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EINVAL])
def test_any_other_error_is_raised(
    number: int, tmp_path: Path, content: memoryview, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int, left: memoryview, at: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        write(tmp_path, content)
