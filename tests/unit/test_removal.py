"""What cannot be removed is left, holds nothing else, and is in nobody's way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stored_versions import Busy, names, staged, write

from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.files import take
from ckptbench.common.removal import try_to_remove


def test_of_a_folder_all_goes_that_can(tmp_path: Path, busy: Busy) -> None:
    for name in ("a", "b"):
        (tmp_path / "version" / name).mkdir(parents=True)
        (tmp_path / "version" / name / "large").write_bytes(bytes(100))
    left = busy.hold(tmp_path / "version" / "a")
    error = try_to_remove(tmp_path / "version")
    assert error is not None
    assert str(left) in str(error)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [left]
    busy.free()
    assert try_to_remove(tmp_path / "version") is None
    assert names(tmp_path) == []
    assert try_to_remove(tmp_path / "version") is None, "it may be gone already"


def test_a_link_goes_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert try_to_remove(tmp_path / "link", first="inner") is None
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["inner"]


def test_what_is_left_of_a_version_is_none(tmp_path: Path, busy: Busy) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    busy.hold(write(store, 1).folder)
    for step in (2, 3, 4):
        write(store, step)
        store.retain()
        assert store.steps() == [step]
    assert names(tmp_path) == ["version-00000001", "version-00000004"]


def test_a_version_whose_manifest_cannot_be_removed_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    first = write(store, 1)
    before = names(first.folder)
    write(store, 2)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        patch.setattr(os, "rmdir", refuse)
        patch.setattr(Path, "unlink", refuse)
        store.retain()
    assert names(first.folder) == before
    store.retain()
    assert names(tmp_path) == ["version-00000002"]


def test_a_half_written_version_that_cannot_be_removed_is_not_in_the_way_of_the_next_attempt(
    tmp_path: Path, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    busy.hold(staged(CheckpointStore(tmp_path, keep=1), 2))
    store = CheckpointStore(tmp_path, keep=1, attempt=2)
    store.discard_partial()
    assert "version-00000002.partial cannot be removed" in caplog.text
    assert names(tmp_path) == ["version-00000002.partial"]
    assert write(store, 2) == store.newest()


def test_a_version_that_cannot_become_the_spare_one_is_removed(tmp_path: Path, busy: Busy) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    busy.hold(write(store, 1).folder)
    for step in (2, 3, 4):
        write(store, step)
        store.retain(recycle=True)
        assert store.steps() == [step]
    assert names(tmp_path) == ["version-00000004", "version-recycled.partial"]
    assert names(store.recycled) == [".nfs0001"], "that could not go"


def test_a_step_that_is_written_again_takes_the_place_of_one_that_cannot_be_removed(
    tmp_path: Path, busy: Busy
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    busy.hold(write(store, 2).folder)
    assert write(store, 2) == store.newest()
    store.retain()
    assert names(tmp_path) == ["version-00000002", "version-00000002.1.removed"]
    busy.free()
    store.retain()
    assert names(tmp_path) == ["version-00000002"]


@pytest.mark.parametrize(
    "recycled", ["no file", "a file", "a link", "a protected one", "one with two names"]
)
def test_a_file_of_a_removed_version_is_taken_or_else_a_new_one_made(
    tmp_path: Path, recycled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (tmp_path / "kept").write_bytes(b"kept")
    if recycled == "a link":
        old.symlink_to(tmp_path / "kept")
    elif recycled != "no file":
        old.write_bytes(b"old")
    if recycled == "a protected one":

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "rename", refuse)
    if recycled == "one with two names":
        os.link(old, tmp_path / "linked")
    take(str(old), str(new))
    assert new.read_bytes() == (b"old" if recycled == "a file" else b"")
    assert not new.is_symlink()
    assert (tmp_path / "kept").read_bytes() == b"kept"
    new.write_bytes(b"new")
    assert recycled != "one with two names" or (tmp_path / "linked").read_bytes() == b"old"


MOUNTED = """
import ctypes, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from stored_versions import CheckpointStore, names, write
libc, folder = ctypes.CDLL(None, use_errno=True), Path(sys.argv[1])
store = CheckpointStore(folder, keep=1)
(inner := write(store, 1).folder / "inner").mkdir()
assert libc.mount(b"none", str(inner).encode(), b"tmpfs", 0, None) == 0
write(store, 2), store.retain()
print(store.steps(), names(folder))
libc.umount2(str(inner).encode(), 2)
write(store, 3), store.retain()
print(store.steps(), names(folder))
"""


def test_a_version_with_something_mounted_in_it_goes_when_it_is_free(tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = [str(tmp_path / "store"), str(here), str(here.parents[1] / "src")]
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", sys.executable, "-c", MOUNTED, *paths],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "[2] ['version-00000001', 'version-00000002']",
        "[3] ['version-00000003']",
    ]
    assert "version-00000001/inner" in done.stderr
    assert "cannot be removed" in done.stderr
