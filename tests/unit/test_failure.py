"""The error of a failed save names the level that failed, its folder, the cause, and the remedy that fits it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from test_levels import deepfreeze, opened, save, three
from test_native import built

from ckptbench.checkpointing.levels import failed_save
from ckptbench.checkpointing.state_files import shard_name
from ckptbench.common import remedies
from ckptbench.common.errors import CheckpointError
from ckptbench.common.remedies import mount_of
from ckptbench.matrix.levels import MEMORY, NODE, SETTINGS, SHARED
from ckptbench.run.events import SaveFailed
from ckptbench.run.trace import whole_events

FOLDERS = {MEMORY: Path("/here/memory"), NODE: Path("/here/node"), SHARED: Path("/here/shared")}
OTHER = {
    MEMORY: "set checkpoints.memory_folder to another folder, or set memory: 0",
    NODE: "set checkpoints.node_folder to another folder, or set node: 0",
    SHARED: "set checkpoints.folder to another disk",
}


def full(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def status(*, free_bytes: int = 7_000_000, free_inodes: int = 5) -> os.statvfs_result:
    """Of a file system with blocks of one byte and 100 inodes."""
    return os.statvfs_result((1, 1, 10**9, free_bytes, free_bytes, 100, free_inodes, free_inodes, 0, 255))  # fmt: skip


@pytest.mark.parametrize("level", [MEMORY, NODE, SHARED])
def test_the_level_that_failed_is_named_and_no_other(tmp_path: Path, level: str) -> None:
    levels, framework = three(tmp_path), built()
    spec = deepfreeze(memory=1, node=1, shared=1)
    trace = tmp_path / "trace.jsonl"
    timed = opened(spec, levels, framework, trace)
    buffer = timed._strategy._buffer  # type: ignore[attr-defined]
    write = buffer.write

    def fails(staging: Path, recycled: Path) -> object:
        if staging.parent == tmp_path / level:
            raise CheckpointError(
                f"{staging / shard_name(0)} cannot be written in the background: OSError: {full(errno.ENOSPC)}"
            )
        return write(staging, recycled)

    buffer.write = fails
    save(timed, framework, 1)
    with pytest.raises(CheckpointError) as caught:
        timed.settle()
    said = str(caught.value)
    assert f"step 1 cannot be written to {tmp_path / level}, the level {level}, (" in said
    assert "No space left" in said
    assert said.endswith(f"MB are free on {mount_of(tmp_path)}: free some, or {OTHER[level]}")
    for other in {MEMORY, NODE, SHARED} - {level}:
        assert str(tmp_path / other) not in said
        assert SETTINGS[other] not in said
    assert len(said.replace(str(tmp_path), "")) < 400
    (failed,) = (event for event in whole_events(trace) if isinstance(event, SaveFailed))
    assert failed.error.startswith("CheckpointError: ")


@pytest.mark.parametrize("level", [MEMORY, NODE, SHARED])
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (full(errno.ENOSPC), "7 MB are free on /: free some, or "),
        (CheckpointError(f"x cannot be written: {full(errno.ENOSPC)}"), "7 MB are free on /: free some, or "),
        (RuntimeError("writing failed: no space left on device"), "7 MB are free on /: free some, or "),
        (full(errno.EDQUOT), "your quota on / is used up: free some, or "),
        (full(errno.EACCES), "let this user write {folder}, or "),
        (full(errno.EROFS), "/ is mounted read-only: mount it for writing, or "),
        (full(errno.EISDIR), ""),
        (full(errno.EIO), ""),
        (full(errno.EFBIG), ""),
    ],
)  # fmt: skip
def test_the_remedy_is_that_of_the_cause(
    monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str, level: str
) -> None:
    monkeypatch.setattr(remedies, "_status", lambda folder: status())
    said = str(failed_save(3, error, level, FOLDERS))
    assert said.endswith(f"; {remedy.format(folder=FOLDERS[level])}{OTHER[level]}")


def test_inodes_that_are_used_up_are_told_from_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies, "_status", lambda folder: status(free_inodes=0))
    said = str(failed_save(3, full(errno.ENOSPC), NODE, FOLDERS))
    assert said.endswith(f"; no inodes are left on /: remove files there, or {OTHER[NODE]}")
    assert "MB are free" not in said


def test_the_free_space_is_told_where_a_library_hides_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remedies, "_status", lambda folder: status())
    said = str(failed_save(3, RuntimeError("file write failed"), SHARED, FOLDERS))
    assert said.endswith("; 7 MB are free on /: set checkpoints.folder to another disk")


def test_an_error_without_a_level_blames_none() -> None:
    said = str(failed_save(3, full(errno.ENOSPC), None, FOLDERS))
    assert re.search(
        "to /here/memory or /here/node or /here/shared \\(OSError.*left on device\\)$", said
    )


def test_the_message_of_a_library_is_brought_into_one_line() -> None:
    said = str(failed_save(3, ValueError("one\n  two"), SHARED, {SHARED: Path("/here")}))
    assert "(ValueError: one two)" in said
