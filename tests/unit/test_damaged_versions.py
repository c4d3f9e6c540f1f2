"""Damage to the files of a version: it is named, and the version before is taken."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_versions import fails, flip_bit, names, write, write_with_folders

from ckptbench.checkpointing import version as version_module
from ckptbench.checkpointing.levels import Levels
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import open_version, read_version
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import read_json, write_json
from ckptbench.matrix.levels import MEMORY, NODE, SHARED

pytestmark = pytest.mark.usefixtures("never_hangs")


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


def change_manifest(**fields: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        write_json(folder / "manifest.json", read_json(folder / "manifest.json") | fields)

    return change


def committed_with(**fields: object) -> Callable[[Path], None]:
    """As if the version had been committed with these fields: the checksum of the manifest is right."""

    def change(folder: Path) -> None:
        content = read_json(folder / "manifest.json") | fields
        del content["sha256"]
        content["sha256"] = version_module._checksum(content)
        write_json(folder / "manifest.json", content)

    return change


def with_entry(entry: object, name: str = "model.bin") -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        files = read_json(folder / "manifest.json")["files"]
        committed_with(files={**files, name: entry})(folder)

    return change


WRONG_SHAPES: list[dict[str, object]] = [
    *({"files": wrong} for wrong in (None, 5, "all", [], [["model.bin", 5]], {"model.bin": None})),
    *({"identity": wrong} for wrong in (None, 5, [], {}, {"run_id": 5})),
    *({"step": wrong} for wrong in (None, "2", True, 2.5, [2])),
    *({name: None} for name in ("epoch", "step_in_epoch", "world_size", "format", "attempt")),
    *({"sha256": wrong} for wrong in (None, 5, {})),
]
WRONG_ENTRIES: list[object] = [
    *(None, 5, "model.bin", [], {}),
    {"bytes": "5000", "kind": "state", "rank": None, "xxh3_128_of_blocks": "0"},
    {"bytes": 5000, "kind": None, "rank": None, "xxh3_128_of_blocks": "0"},
    {"bytes": 5000, "kind": "state", "rank": "0", "xxh3_128_of_blocks": "0"},
    {"bytes": 5000, "kind": "state", "rank": None, "xxh3_128_of_blocks": 0},
    {"bytes": True, "kind": "state", "rank": None, "xxh3_128_of_blocks": "0"},
]
SOUND_ENTRY = {"bytes": 5000, "kind": "state", "rank": None, "xxh3_128_of_blocks": "0"}


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
    (lambda folder: (folder / "manifest.json").write_text("{}"), "was changed after its commit"),
    (change_manifest(step=1), r"manifest\.json was changed after its commit"),
    (change_manifest(epoch=7), r"manifest\.json was changed after its commit"),
    (change_manifest(world_size=2), r"manifest\.json was changed after its commit"),
    (change_manifest(files={}), r"manifest\.json was changed after its commit"),
    (change_manifest(more=1), r"manifest\.json was changed after its commit"),
    (change_manifest(identity={}), r"manifest\.json was changed after its commit"),
    (replace_manifest_by_link, r"manifest\.json is no regular file"),
    (replace_by_fifo("manifest.json"), r"manifest\.json is no regular file"),
    (replace_by_fifo("model.bin"), r"model\.bin is no regular file"),
    (move_behind_a_link, "version-00000002 is no folder"),
    (nest_deeply(100_000), "no readable manifest: .* it is nested too deeply"),
    *((nest_deeply(depth), "no readable manifest|was changed") for depth in (900, 950, 980)),
    *((change_manifest(**fields), "was changed after its commit") for fields in WRONG_SHAPES),
    *((committed_with(**fields), "was changed after its commit") for fields in WRONG_SHAPES[:-3]),
    *((with_entry(entry), "was changed after its commit") for entry in WRONG_ENTRIES),
    *(
        (with_entry(SOUND_ENTRY, name), "was changed after its commit")
        for name in ("/etc/passwd", "../version-00000001/model.bin", "", ".")
    ),
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


@pytest.mark.parametrize("level", [MEMORY, NODE])
@pytest.mark.parametrize("fields", WRONG_SHAPES[:3])
def test_a_damaged_version_at_a_near_level_gives_way_to_an_older_one_at_another(
    tmp_path: Path, level: str, fields: dict[str, object]
) -> None:
    levels = Levels({level: tmp_path / level, SHARED: tmp_path / "shared"}, keep=2)
    good, bad = write(levels.stores[SHARED], 1), write(levels.stores[level], 2)
    committed_with(**fields)(bad.folder)
    assert levels.newest() == good
    assert names(tmp_path / level) == ["version-00000002.refused"]


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


def test_a_version_with_checksums_of_another_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older ckptbench wrote them."""
    monkeypatch.setattr(version_module, "ALGORITHM", "xxh3_128")
    store = CheckpointStore(tmp_path, keep=2)
    version = write(store, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="or another version of ckptbench wrote it"):
        open_version(version.folder)
