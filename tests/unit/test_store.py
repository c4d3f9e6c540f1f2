"""The checkpoint store: whatever happens to the files, what is read back is a whole version or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ckptbench.checkpoints.store import (
    CheckpointStore,
    Position,
    Version,
    open_version,
    read_version,
)
from ckptbench.errors import CheckpointError

SOURCE = Path(__file__).resolve().parents[2] / "src"


def write(store: CheckpointStore, step: int, *, size: int = 5000) -> Version:
    """A version whose two files are functions of its step."""
    staging = store.staging(step)
    random = np.random.default_rng(step)
    (staging / "model.bin").write_bytes(random.bytes(size))
    (staging / "rank-0.npz").write_bytes(random.bytes(100))
    position = Position(step=step, epoch=step // 4, step_in_epoch=step % 4)
    return store.commit(
        staging, store.sync(staging).files, position=position, world_size=1, format="bin"
    )


def test_a_committed_version_is_read_back_as_it_was(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 7)
    assert store.newest() == version == open_version(version.folder)
    assert read_version(version.folder) == version
    assert version.files == {"model.bin": 5000, "rank-0.npz": 100}
    assert version.position == Position(step=7, epoch=1, step_in_epoch=3)


def test_the_newest_is_the_highest_step_not_the_last_name(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=9)
    for step in (9, 123456789, 10):
        write(store, step)
    newest = store.newest()
    assert newest is not None
    assert newest.position.step == 123456789


def test_there_is_no_newest_of_nothing(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "never made", keep=1).newest() is None


def test_a_partial_version_is_never_read_and_can_be_discarded(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 1)
    (store.staging(2) / "model.bin").write_bytes(b"half")
    assert store.newest() == version
    store.discard_partial()
    assert [path.name for path in tmp_path.iterdir()] == [version.folder.name]


def test_the_same_step_can_be_committed_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    write(store, 3)
    assert write(store, 3) == store.newest()


def test_retention_removes_the_oldest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 10):
        write(store, step)
    store.retain()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "version-00000002",
        "version-00000010",
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "model.bin").unlink(), r"model\.bin is missing"),
        (lambda folder: os.truncate(folder / "model.bin", 10), "has 10 bytes, was committed with"),
        (lambda folder: flip_bit(folder / "model.bin", 99), "was changed after its commit"),
        (lambda folder: flip_bit(folder / "rank-0.npz", 3), "was changed after its commit"),
        (lambda folder: (folder / "manifest.json").unlink(), "no readable manifest"),
        (lambda folder: os.truncate(folder / "manifest.json", 40), "no readable manifest"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "no readable manifest"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "no readable manifest"),
    ],
)
def test_a_damaged_version_is_named_and_the_one_before_it_taken(  # type: ignore[no-untyped-def]
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage, words: str
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    good, bad = write(store, 1), write(store, 2)
    damage(bad.folder)
    with pytest.raises(CheckpointError, match=words):
        open_version(bad.folder)
    assert store.newest() == good
    assert str(bad.folder) in caplog.text


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
    assert {name: len(entry["sha256"]) for name, entry in files.items()} == {
        "model.bin": 64,
        "rank-0.npz": 64,
    }
