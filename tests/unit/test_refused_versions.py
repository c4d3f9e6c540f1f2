"""Versions that a store refuses: they are set aside and removed, and break no later save."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_versions import Busy, fails, flip_bit, names, write

from ckptbench.checkpointing.levels import Levels
from ckptbench.checkpointing.store import CheckpointStore, held_bytes
from ckptbench.checkpointing.version import open_version
from ckptbench.common.errors import CheckpointError
from ckptbench.matrix.levels import MEMORY, SHARED

pytestmark = pytest.mark.usefixtures("never_hangs")


def test_a_version_that_is_damaged_on_purpose_is_not_taken(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    for step in (5, 10):
        write(store, step)
    damaged = store.damage_newest()
    assert damaged.parent.name == "version-00000010"
    newest = store.newest()
    assert newest is not None
    assert newest.position.step == 5


def test_a_run_that_goes_on_from_an_older_version_keeps_what_it_writes_then(tmp_path: Path) -> None:
    """Version 20 is damaged; the run goes on from 10 and stops at 13: of one version kept, it is 13."""
    store = CheckpointStore(tmp_path, keep=1)
    good, bad = write(store, 10), write(store, 20)
    flip_bit(bad.folder / "model.bin", 0)
    assert store.newest() == good
    assert names(tmp_path) == ["version-00000010", "version-00000020.refused"]
    version = write(store, 13)
    store.retain()
    assert names(tmp_path) == ["version-00000013"]
    assert store.newest() == version


def test_a_version_that_is_refused_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for size in (10, 20):
        (write(store, 2, size=size).folder / "rank-0.safetensors").unlink()
        assert store.newest() is None
    assert names(tmp_path) == ["version-00000002.refused"]
    assert (tmp_path / "version-00000002.refused" / "model.bin").stat().st_size == 20


def test_a_version_that_cannot_be_set_aside_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    (write(store, 2).folder / "model.bin").unlink()
    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(CheckpointError, match=r"version-00000002 is damaged and cannot be set"):
        store.newest()


@pytest.mark.parametrize("place", ["file", "link", "dangling link"])
def test_what_lies_in_the_place_of_a_version_is_set_aside_and_removed(
    tmp_path: Path, place: str
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    good = write(store, 1)
    intruder = tmp_path / "version-00000002"
    if place == "file":
        intruder.write_text("no folder")
    else:
        intruder.symlink_to(good.folder if place == "link" else tmp_path / "nowhere")
    assert store.newest() == good
    store.retain()
    assert names(tmp_path) == ["version-00000001"]
    assert store.newest() == good


NOBODY = 65534


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """A folder of a user who is not root, and the test runs as that user: root may read any folder."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory() as name:  # nobody else may enter tmp_path
        os.chown(name, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_version_that_may_not_be_read_is_set_aside_and_breaks_no_later_save(
    unprivileged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(unprivileged, keep=1)
    good, bad = write(store, 1), write(store, 2)
    (bad.folder / "inner").mkdir()
    for folder in (bad.folder / "inner", bad.folder):
        folder.chmod(0)
    assert store.newest() == good
    assert "Permission denied" in caplog.text
    write(store, 3)
    store.retain()
    assert names(unprivileged) == ["version-00000002.refused", "version-00000003"]
    assert "version-00000002.refused cannot be removed" in caplog.text


def test_a_refused_version_that_cannot_be_removed_breaks_no_later_save(
    tmp_path: Path, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    (bad := write(store, 1)).folder.joinpath("model.bin").unlink()
    busy.hold(bad.folder)
    assert store.newest() is None
    write(store, 2)
    store.retain()
    assert "version-00000001.refused cannot be removed" in caplog.text
    busy.free()
    store.retain()
    assert names(tmp_path) == ["version-00000002"]


def test_versions_that_were_kept_aside_are_neither_read_nor_counted_nor_removed(
    tmp_path: Path,
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    versions = [write(store, step).folder for step in (1, 2, 3)]
    (versions[2] / "model.bin").unlink()
    assert store.newest() is not None
    kept = store.keep_aside()
    assert kept == tmp_path / "kept-1"
    assert names(kept) == ["version-00000001", "version-00000002", "version-00000003.refused"]
    assert (store.newest(), held_bytes(tmp_path), store.keep_aside()) == (None, 0, None)
    for step in (4, 5):
        write(store, step)
    store.retain()
    store.clear()
    assert names(tmp_path) == ["kept-1"]
    open_version(kept / "version-00000002")
    write(store, 1)
    assert store.keep_aside() == tmp_path / "kept-2"


def test_a_local_tier_with_versions_that_were_kept_aside_is_not_removed(tmp_path: Path) -> None:
    levels = Levels({MEMORY: tmp_path / "memory", SHARED: tmp_path / "shared"}, keep=1)
    write(levels.stores[MEMORY], 1)
    levels.keep_aside()
    write(levels.stores[MEMORY], 2)
    levels.forget_local()
    assert names(tmp_path / "memory") == ["kept-1"]
    (tmp_path / "memory" / "kept-1").rename(tmp_path / "taken")
    levels.forget_local()
    assert not (tmp_path / "memory").exists()
