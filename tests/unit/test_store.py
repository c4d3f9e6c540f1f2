"""The checkpoint store: whatever happens to a run, what is read back is a whole version or nothing."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from stored_versions import NESTED, commit, fails, names, staged, write, write_with_folders
from strategies import IDENTITY

from ckptbench.checkpointing import store as store_module
from ckptbench.checkpointing.checksum import ALGORITHM
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import (
    MANIFEST,
    Version,
    checksums_of,
    open_version,
    read_version,
)
from ckptbench.common import removal
from ckptbench.common.errors import CheckpointError
from ckptbench.run.events import File
from ckptbench.run.position import Position
from tests.study.selection import FULL

pytestmark = pytest.mark.usefixtures("never_hangs")
SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_a_committed_version_is_read_back_as_it_was(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 7)
    assert store.newest() == version == open_version(version.folder)
    assert read_version(version.folder) == version
    assert {name: file.bytes for name, file in version.files.items()} == {
        "model.bin": 5000,
        "rank-0.safetensors": 100,
    }
    assert version.position == Position(step=7, epoch=1, step_in_epoch=3)


def test_the_new_name_of_a_version_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(store_module, "fsync", lambda path: synced.append((path, names(tmp_path))))
    version = write(CheckpointStore(tmp_path, keep=1), 7)
    assert synced[-1] == (tmp_path, [version.folder.name])


def test_what_an_unfinished_removal_has_left_is_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    old, new = write(store, 1), write(store, 2)
    monkeypatch.setattr(removal.shutil, "rmtree", lambda *_, **__: None)
    store.retain()
    assert names(old.folder) == ["model.bin", "rank-0.safetensors"]
    assert (store.steps(), store.versions()) == ([2], [new])


def test_the_files_of_a_version_may_lie_in_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is named with its path, is synced, as is the folder in which it lies, and goes with its version."""
    synced: set[str] = set()
    fsync = store_module.fsync

    def seen(path: Path) -> None:
        synced.add(path.name)
        fsync(path)

    monkeypatch.setattr(store_module, "fsync", seen)
    store = CheckpointStore(tmp_path, keep=1)
    write_with_folders(store, 1)
    version = write_with_folders(store, 2)
    assert tuple(version.files) == NESTED
    assert {
        "index",
        "values",
        "places",
        "0",
        "state",
        "version-00000002.partial",
        MANIFEST,
    } <= synced
    store.retain()
    assert names(tmp_path) == [version.folder.name]
    assert store.newest() == version
    assert [file.name for file in version.read_by(0)] == [*NESTED]


def test_of_files_that_each_rank_has_for_itself_a_rank_reads_its_own() -> None:
    files = [
        File(name=f"{kind}-{rank}", kind=kind, rank=rank, bytes=1)
        for kind in ("state", "replica", "own")
        for rank in (0, 1)
    ]
    version = Version(
        folder=Path("version"),
        identity=IDENTITY,
        position=Position(step=1, epoch=0, step_in_epoch=1),
        world_size=2,
        format="bin",
        files={file.name: file for file in files},
    )
    read = [file.name for file in version.read_by(1)]
    assert read == ["state-0", "state-1", "replica-1", "own-1"]


def test_an_empty_folder_among_the_files_is_an_error_of_its_save(tmp_path: Path) -> None:
    """It would be gone, or in the way, wherever the version is copied to."""
    store = CheckpointStore(tmp_path, keep=1)
    (staged(store, 1) / "left").mkdir(parents=True)
    position = Position(step=1, epoch=0, step_in_epoch=1)
    with pytest.raises(CheckpointError, match=r"version-00000001\.partial/left belongs to no"):
        commit(store, staged(store, 1), [], position, format="bin")


def test_the_newest_is_the_highest_step_not_the_last_name(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=9)
    for step in (9, 123456789, 10):
        write(store, step)
    newest = store.newest()
    assert newest is not None
    assert newest.position.step == 123456789


def test_all_versions_are_listed_oldest_first_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    assert store.versions() == []
    written = [write(store, 9), write(store, 10)]
    staged(store, 11)
    assert store.versions() == written
    (written[0].folder / "model.bin").write_bytes(b"changed")
    with pytest.raises(CheckpointError, match="version-00000009"):
        store.versions()


def test_there_is_no_newest_of_nothing(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "never made", keep=1).newest() is None


def test_a_partial_version_is_never_read_and_can_be_discarded(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 1)
    (staged(store, 2) / "model.bin").write_bytes(b"half")
    assert store.newest() == version
    store.discard_partial()
    assert names(tmp_path) == [version.folder.name]


def test_a_kill_between_the_two_renames_of_a_second_commit_loses_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    first = write(store, 7)

    def killed_at_the_second(folder: Path, target: Path) -> Path:
        monkeypatch.undo()
        folder.rename(target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write(store, 7)
    monkeypatch.undo()
    assert store.steps() == []
    after = CheckpointStore(tmp_path, keep=2, attempt=2)
    after.discard_partial()
    assert after.newest() == first
    assert names(tmp_path) == [first.folder.name]


def test_a_replaced_version_that_cannot_be_put_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    folder = write(store, 7).folder
    folder.rename(tmp_path / f"{folder.name}.1.removed")

    def refuses(*_: object) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuses)
    with pytest.raises(CheckpointError, match=rf"{folder.name}.1.removed is whole and cannot be"):
        store.newest()


def test_the_same_step_can_be_committed_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    write(store, 3)
    assert write(store, 3) == store.newest()


def test_retention_removes_the_oldest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 10):
        write(store, step)
    store.retain()
    assert names(tmp_path) == ["version-00000002", "version-00000010"]


def test_a_version_of_an_earlier_run_that_cannot_be_removed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    write(store, 1)
    staged(store, 2)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "try_to_remove", lambda *_, **__: OSError("in use"))
        with pytest.raises(
            CheckpointError, match=r"of an earlier run cannot be removed: .*remove it"
        ):
            store.clear()
    store.clear()
    assert names(tmp_path) == []


def test_a_folder_of_checkpoints_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("no folder")
    with pytest.raises(CheckpointError, match=r"checkpoints: .*cannot be listed: Not a directory"):
        CheckpointStore(tmp_path / "checkpoints", keep=1).newest()


WRITER = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from stored_versions import CheckpointStore, write
store = CheckpointStore(Path(sys.argv[1]), keep=2)
for step in range(1, 10**6):
    write(store, step, size=200_000)
    store.retain()
    print(step, flush=True)
"""


@pytest.mark.parametrize("seed", range(5 if FULL else 1))
def test_a_kill_at_any_moment_leaves_the_newest_complete_version(tmp_path: Path, seed: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parent), str(SOURCE)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(np.random.default_rng(seed).uniform(0, 0.05))
    writer.send_signal(signal.SIGKILL)
    reported = [int(line) for line in writer.communicate()[0].split()]
    newest = CheckpointStore(tmp_path, keep=2).newest()
    assert newest is not None
    assert newest.position.step >= max(reported, default=1)
    expected = np.random.default_rng(newest.position.step).bytes(200_000)
    assert (newest.folder / "model.bin").read_bytes() == expected


def test_the_manifest_names_every_file_with_its_checksum(tmp_path: Path) -> None:
    version = write(CheckpointStore(tmp_path, keep=1), 1)
    files = json.loads((version.folder / "manifest.json").read_text())["files"]
    assert {name: len(entry[ALGORITHM]) for name, entry in files.items()} == {
        "model.bin": 32,
        "rank-0.safetensors": 32,
    }


def test_a_manifest_that_cannot_be_written_is_an_error_of_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "write_manifest", fails)
    with pytest.raises(OSError, match="Input/output error"):
        write(CheckpointStore(tmp_path, keep=1), 1)


def test_a_checksum_that_is_known_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "file_checksum", fails)
    store = CheckpointStore(tmp_path, keep=1)
    (staged(store, 1) / "model").touch()
    files = [File(name="model", kind="state", bytes=0, checksum="0" * 32)]
    position = Position(step=1, epoch=0, step_in_epoch=1)
    version = commit(store, staged(store, 1), files, position, format="bin")
    assert checksums_of(version.folder) == {"model": "0" * 32}
