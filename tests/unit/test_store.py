"""The checkpoint store: whatever happens to the files, what is read back is a whole version or nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from strategies import IDENTITY

from ckptbench.checkpoints import store as store_module
from ckptbench.checkpoints import version as version_module
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Version, open_version, read_version
from ckptbench.errors import CheckpointError
from ckptbench.machine.files import read_json, write_json
from ckptbench.runs.events import File
from ckptbench.runs.position import Position

SOURCE = Path(__file__).resolve().parents[2] / "src"
NOBODY = 65534
HANGS_SECONDS = 30


@pytest.fixture(autouse=True)
def never_hangs() -> Iterator[None]:
    """A read that waits for ever ends its test."""

    def give_up(*_: object) -> NoReturn:
        raise AssertionError(f"still waiting after {HANGS_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def write(store: CheckpointStore, step: int, *, size: int = 5000) -> Version:
    """A version whose two files are functions of its step."""
    staging = store.staging(step)
    random = np.random.default_rng(step)
    (staging / "model.bin").write_bytes(random.bytes(size))
    (staging / "rank-0.safetensors").write_bytes(random.bytes(100))
    position = Position(step=step, epoch=step // 4, step_in_epoch=step % 4)
    files = [
        File(name="model.bin", kind="state", bytes=size),
        File(name="rank-0.safetensors", kind="own", rank=0, bytes=100),
    ]
    return store.commit(
        staging,
        files,
        store.sync(staging, {}).checksums,
        identity=IDENTITY,
        position=position,
        world_size=1,
        format="bin",
    )


def write_with_folders(store: CheckpointStore, step: int) -> Version:
    """A version whose state lies in folders, as some engines write it."""
    staging = store.staging(step)
    for name in NESTED:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(np.random.default_rng(step).bytes(1000))
    return store.commit(
        staging,
        [File(name=name, kind="state", bytes=1000) for name in NESTED],
        store.sync(staging, {}).checksums,
        identity=IDENTITY,
        position=Position(step=step, epoch=0, step_in_epoch=step),
        world_size=1,
        format="folders",
    )


NESTED = ("index", "state/0/values", "state/places")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
    assert {"index", "values", "places", "0", "state", "version-00000002.partial"} <= synced
    store.retain()
    assert names(tmp_path) == [version.folder.name]
    assert store.newest() == version
    assert version.read_by(0) == [version.folder / name for name in NESTED]


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
    read = [path.name for path in version.read_by(1)]
    assert read == ["state-0", "state-1", "replica-1", "own-1"]


def test_an_empty_folder_among_the_files_is_an_error_of_its_save(tmp_path: Path) -> None:
    """It would be gone, or in the way, wherever the version is copied to."""
    store = CheckpointStore(tmp_path, keep=1)
    (store.staging(1) / "left").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=r"version-00000001\.partial/left"):
        store.sync(store.staging(1), {})


def move_inner_behind_a_link(folder: Path) -> None:
    """The same bytes, elsewhere."""
    (folder / "state").rename(folder.parent / "elsewhere")
    (folder / "state").symlink_to(folder.parent / "elsewhere")


DAMAGES_OF_FOLDERS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: shutil.rmtree(folder / "state/0"), r"state/0/values is missing"),
    (move_inner_behind_a_link, r"state/0/values is missing"),
    (
        lambda folder: flip_bit(folder / "state/0/values", 5),
        r"state/0/values was changed after its commit",
    ),
    (
        lambda folder: (folder / "state/0/more").touch(),
        r"state/0/more was not there at the commit",
    ),
    (lambda folder: (folder / "state/1").mkdir(), r"state/1 was not there at the commit"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES_OF_FOLDERS)
def test_damage_in_a_folder_of_a_version_is_named(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    good, bad = write_with_folders(store, 1), write_with_folders(store, 2)
    damage(bad.folder)
    with pytest.raises(CheckpointError, match=words):
        open_version(bad.folder)
    assert store.newest() == good


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
    store.staging(11)
    assert store.versions() == written
    (written[0].folder / "model.bin").write_bytes(b"changed")
    with pytest.raises(CheckpointError, match="version-00000009"):
        store.versions()


def test_a_version_that_is_damaged_on_purpose_is_not_taken(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    for step in (5, 10):
        write(store, step)
    damaged = store.damage_newest()
    assert damaged.parent.name == "version-00000010"
    newest = store.newest()
    assert newest is not None
    assert newest.position.step == 5


def test_there_is_no_newest_of_nothing(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "never made", keep=1).newest() is None


def test_a_partial_version_is_never_read_and_can_be_discarded(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 1)
    (store.staging(2) / "model.bin").write_bytes(b"half")
    assert store.newest() == version
    store.discard_partial()
    assert names(tmp_path) == [version.folder.name]


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


def change_manifest(**fields: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        write_json(folder / "manifest.json", read_json(folder / "manifest.json") | fields)

    return change


def without_checksum(folder: Path) -> None:
    manifest = read_json(folder / "manifest.json")
    del manifest["sha256"]
    write_json(folder / "manifest.json", manifest)


def replace_by_link(folder: Path) -> None:
    """To the very same bytes: whoever changes those changes the version."""
    (folder / "model.bin").rename(folder.parent / "elsewhere.bin")
    (folder / "model.bin").symlink_to(folder.parent / "elsewhere.bin")


def replace_by_folder(folder: Path) -> None:
    (folder / "model.bin").unlink()
    (folder / "model.bin").mkdir()


def replace_manifest_by_link(folder: Path) -> None:
    (folder / "manifest.json").rename(folder.parent / "elsewhere.json")
    (folder / "manifest.json").symlink_to(folder.parent / "elsewhere.json")


def replace_by_fifo(name: str) -> Callable[[Path], None]:
    """A read of it waits for a writer for ever."""

    def replace(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return replace


def move_behind_a_link(folder: Path) -> None:
    """The folder under its own name, but elsewhere."""
    (elsewhere := folder.parent / "elsewhere").mkdir()
    folder.rename(elsewhere / folder.name)
    folder.symlink_to(elsewhere / folder.name)


def nest_deeply(depth: int) -> Callable[[Path], None]:
    return lambda folder: (folder / "manifest.json").write_text(
        '{"sha256":"0","more":' + "[" * depth + "]" * depth + "}"
    )


def of_an_earlier_ckptbench(folder: Path) -> None:
    """Its own checksum holds, and it says nothing about its training."""
    content = read_json(folder / "manifest.json")
    del content["identity"]
    write_valid_manifest(folder, content)


def with_sha256_of_its_files(folder: Path) -> None:
    """As ckptbench wrote it before it had XXH3: every checksum in it holds."""
    content = read_json(folder / "manifest.json")
    for name, entry in content["files"].items():
        del entry["xxh3_128"]
        entry["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    write_valid_manifest(folder, content)


def write_valid_manifest(folder: Path, content: dict[str, object]) -> None:
    content = {name: value for name, value in content.items() if name != "sha256"}
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    write_json(folder / "manifest.json", {**content, "sha256": checksum})


def replace_by_version_1(folder: Path) -> None:
    """Whole and unchanged, but that of another step."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("version-00000001"), folder)


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.bin").unlink(), r"model\.bin is missing"),
    (lambda folder: os.truncate(folder / "model.bin", 10), "has 10 bytes, was committed with"),
    (lambda folder: flip_bit(folder / "model.bin", 99), r"model\.bin was changed after its commit"),
    (
        lambda folder: flip_bit(folder / "rank-0.safetensors", 3),
        r"rank-0\.safetensors was changed after its commit",
    ),
    (replace_by_link, r"model\.bin is no regular file"),
    (replace_by_folder, r"model\.bin is no regular file"),
    (lambda folder: (folder / "model.bin.1").touch(), r"model\.bin\.1 was not there at the commit"),
    (replace_by_version_1, r"manifest\.json is that of step 1"),
    (lambda folder: (folder / "manifest.json").unlink(), "no readable manifest"),
    (lambda folder: os.truncate(folder / "manifest.json", 40), "no readable manifest"),
    (lambda folder: (folder / "manifest.json").write_text("[]"), "no readable manifest"),
    (lambda folder: (folder / "manifest.json").write_text("{}"), "no checksum of itself"),
    (without_checksum, "no checksum of itself: an earlier ckptbench wrote it"),
    (change_manifest(step=1), r"manifest\.json was changed after its commit"),
    (change_manifest(epoch=7), r"manifest\.json was changed after its commit"),
    (change_manifest(world_size=2), r"manifest\.json was changed after its commit"),
    (change_manifest(files={}), r"manifest\.json was changed after its commit"),
    (change_manifest(more=1), r"manifest\.json was changed after its commit"),
    (change_manifest(identity={}), r"manifest\.json was changed after its commit"),
    (of_an_earlier_ckptbench, r"manifest\.json does not say of which training it is: an earlier"),
    (
        with_sha256_of_its_files,
        r"manifest\.json has no xxh3_128 checksums of its files: an earlier ckptbench wrote it",
    ),
    (replace_manifest_by_link, r"manifest\.json is no regular file"),
    (replace_by_fifo("manifest.json"), r"manifest\.json is no regular file"),
    (replace_by_fifo("model.bin"), r"model\.bin is no regular file"),
    (move_behind_a_link, "version-00000002 is no folder"),
    (nest_deeply(100_000), "no readable manifest: .* it is nested too deeply"),
    *((nest_deeply(depth), "no readable manifest|was changed") for depth in (900, 950, 980)),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_version_is_named_and_the_one_before_it_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object], words: str
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    good, bad = write(store, 1), write(store, 2)
    damage(bad.folder)
    with pytest.raises(CheckpointError, match=words):
        open_version(bad.folder)
    assert store.newest() == good
    refused, taken = (record.getMessage() for record in caplog.records)
    assert re.search(rf"{bad.folder}.*{words}.*; set aside as version-00000002\.refused", refused)
    assert taken == f"{good.folder} is sound, and taken instead"


def test_where_no_version_is_sound_there_is_none_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2):
        (write(store, step).folder / "model.bin").unlink()
    assert store.newest() is None
    assert caplog.messages[-1] == f"{tmp_path} holds no sound version"
    assert [name in caplog.text for name in ("version-00000001", "version-00000002")] == [True] * 2


def test_white_space_in_a_manifest_is_no_damage(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 1)
    path = version.folder / "manifest.json"
    path.write_text(json.dumps(read_json(path)))
    assert store.newest() == version


def test_a_manifest_that_was_damaged_since_its_check_is_not_read(tmp_path: Path) -> None:
    version = write(CheckpointStore(tmp_path, keep=1), 1)
    change_manifest(step=2)(version.folder)
    with pytest.raises(CheckpointError, match="was changed after its commit"):
        read_version(version.folder)


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
    assert names(unprivileged) == ["version-00000003"]


def test_a_refused_version_that_cannot_be_removed_breaks_no_later_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    (write(store, 1).folder / "model.bin").unlink()
    assert store.newest() is None
    write(store, 2)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_remove", fails)
        store.retain()
    assert "version-00000001.refused cannot be removed" in caplog.text
    assert "Input/output error): remove it" in caplog.text
    store.retain()
    assert names(tmp_path) == ["version-00000002"]


def test_a_version_of_an_earlier_run_that_cannot_be_removed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    write(store, 1)
    store.staging(2)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_remove", fails)
        with pytest.raises(
            CheckpointError, match=r"of an earlier run cannot be removed .*remove it"
        ):
            store.clear()
    store.clear()
    assert names(tmp_path) == []


def fails(*_: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))  # as `read` does: it names no file


def test_a_file_that_the_storage_does_not_give_back_is_named_and_its_version_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 1)
    monkeypatch.setattr(version_module, "file_checksum", fails)
    with pytest.raises(
        CheckpointError, match=r"version-00000001/model\.bin cannot be read: .*Input/output error"
    ):
        open_version(version.folder)
    assert store.newest() is None


def test_a_folder_of_checkpoints_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("no folder")
    with pytest.raises(CheckpointError, match=r"cannot be listed: .*checkpoints'"):
        CheckpointStore(tmp_path / "checkpoints", keep=1).newest()


def flip_bit(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


WRITER = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from test_store import CheckpointStore, write
store = CheckpointStore(Path(sys.argv[1]), keep=2)
for step in range(1, 10**6):
    write(store, step, size=200_000)
    store.retain()
    print(step, flush=True)
"""


@pytest.mark.parametrize("seed", range(5))
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
    assert {name: len(entry["xxh3_128"]) for name, entry in files.items()} == {
        "model.bin": 32,
        "rank-0.safetensors": 32,
    }
