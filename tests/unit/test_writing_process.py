"""The end of what a rank has shared with the process that wrote for it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from ckptbench.checkpointing.strategies.pytorch import writing_process
from ckptbench.checkpointing.strategies.pytorch.writing_process import LONGEST, end_sharing
from ckptbench.common.errors import CheckpointError

SHARES = """
import multiprocessing.reduction, os, tempfile
from multiprocessing.reduction import DupFd
from ckptbench.checkpointing.strategies.pytorch.writing_process import make_room_for_sockets
if {prepared}:
    make_room_for_sockets()
os.close(DupFd(os.open("/dev/null", os.O_RDONLY)).detach())
print(tempfile.gettempdir())
"""
"""Hands on a file as a tensor in shared memory is handed on, to itself."""


def shared(folder: Path, length: int, *, prepared: bool) -> subprocess.CompletedProcess[str]:
    """Whether it works where the folder of temporary files has a path of this length."""
    temporary = Path(f"{folder}/".ljust(length, "x"))
    temporary.mkdir()
    return subprocess.run(
        [sys.executable, "-c", SHARES.format(prepared=prepared)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1, 117, 200])
def test_memory_is_handed_on_however_long_the_folder_of_temporary_files_is(
    tmp_path: Path, length: int
) -> None:
    done = shared(tmp_path, length, prepared=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == length, "all else stays where it was"


def test_a_longer_folder_needs_the_preparation_and_no_shorter_one_does(tmp_path: Path) -> None:
    assert shared(tmp_path, LONGEST, prepared=False).returncode == 0
    assert "AF_UNIX path too long" in shared(tmp_path, LONGEST + 1, prepared=False).stderr


def test_the_remedy_of_a_long_folder_is_a_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing_process.tempfile, "tempdir", "/x" * 50)
    monkeypatch.setattr(writing_process, "SHORT", ("/no/such/folder",))
    with pytest.raises(CheckpointError, match=r"^TMPDIR \((/x)+\) .* set a shorter TMPDIR$"):
        writing_process.make_room_for_sockets()


def test_a_process_that_multiprocessing_has_started_leaves_its_parents_tracker_alone() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(end_sharing).result(timeout=60)
        # The parent's own goes on: it would raise where the semaphores of another pool cannot be registered.
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            assert other.submit(int).result(timeout=60) == 0
