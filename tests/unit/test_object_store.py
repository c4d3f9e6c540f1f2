"""Versions in an object store: the manifest is the commit, and what is not whole is never taken. The store is fsspec's `memory`."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import fsspec
import numpy as np
import pytest
from in_process import interrupt, last_digest
from strategies import IDENTITY

from ckptbench.checkpointing.object_store import ObjectStore
from ckptbench.checkpointing.uploads import uploading
from ckptbench.checkpointing.version import MANIFEST, Version, open_version
from ckptbench.common.errors import CheckpointError, ConfigError, LaunchError
from ckptbench.common.objects import ObjectPath, StoreError, place_of
from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config
from ckptbench.launch.folder_locks import OWNER
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position

NAMES = ("model.bin", "state/0")
WHOLE = ObjectPath("memory://bucket/whole")
numbers = itertools.count()


@pytest.fixture
def bucket() -> Iterator[ObjectPath]:
    """A beginning of names that no other test has."""
    yield ObjectPath(f"memory://bucket/{next(numbers)}")
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def make_store(bucket: ObjectPath, tmp_path: Path) -> Callable[..., ObjectStore]:
    def make(*, keep: int = 2, attempt: int = 1) -> ObjectStore:
        return ObjectStore(
            bucket, keep=keep, attempt=attempt, marks=tmp_path / "marks", fetch_to=tmp_path
        )

    return make


def put(store: ObjectStore, step: int, *, attempt: int = 1) -> Version:
    """Objects whose bytes are functions of the step, without the commit."""
    staging = store.partial_folder(step)
    files = []
    for number, name in enumerate(NAMES):
        with uploading(staging / name) as upload:
            upload.write(np.random.default_rng(step).bytes(5000 + number))
        files.append(dataclasses.replace(upload.file("state", None), name=name))
    position = Position(step=step, epoch=0, step_in_epoch=step)
    return store.sync(
        staging,
        files,
        identity=IDENTITY,
        position=position,
        world_size=1,
        format="bin",
        attempt=attempt,
    ).version


def write(store: ObjectStore, step: int, *, attempt: int = 1) -> Version:
    version = put(store, step, attempt=attempt)
    assert isinstance(version.folder, ObjectPath)
    store.commit(version.folder, version)
    return version


def names(bucket: ObjectPath) -> list[str]:
    return sorted({name.partition("/")[0] for name in bucket.below()})


def fails(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.EBUSY, "Please reduce your request rate.")


def test_a_version_is_taken_from_the_moment_its_manifest_is_there(
    make_store: Callable[..., ObjectStore],
) -> None:
    store = make_store()
    version = put(store, 1)
    assert store.newest() is None
    store.commit(store.partial_folder(1), version)
    found = store.newest()
    assert found is not None
    assert (found.position, found.folder) == (version.position, store.partial_folder(1))
    assert [file.bytes for file in found.files.values()] == [5000, 5001]


def test_the_bytes_that_a_rank_loads_are_those_that_were_written(
    make_store: Callable[..., ObjectStore], tmp_path: Path
) -> None:
    store = make_store()
    with store.fetched(write(store, 3), rank=0) as folder:
        assert (folder / "state/0").read_bytes() == np.random.default_rng(3).bytes(5001)
        assert folder.parent == tmp_path
    assert not folder.exists()


DAMAGE: dict[str, Callable[[ObjectPath], None]] = {
    "is missing": lambda path: path.parent.remove(path.name),
    "has 4999 bytes, was committed with 5000": lambda path: path.write(path.read()[:-1]),
    "was changed after its commit": lambda path: path.write(b"x" + path.read()[1:]),
    "was not there at the commit": lambda path: (path.parent / "more").write(b"x"),
}


@pytest.mark.parametrize("said", DAMAGE)
def test_a_version_that_is_not_what_was_committed_is_set_aside(
    make_store: Callable[..., ObjectStore], caplog: pytest.LogCaptureFixture, said: str
) -> None:
    store = make_store()
    good, bad = write(store, 1), write(store, 2)
    assert isinstance(bad.folder, ObjectPath)
    DAMAGE[said](bad.folder / "model.bin")
    found = store.newest()
    assert found is not None
    assert found.position == good.position
    assert said in caplog.text
    assert store.steps() == [1]


def test_a_version_that_cannot_be_read_now_is_not_set_aside(
    make_store: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    write(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(fsspec.filesystem("memory")), "cat_file", fails)
        with pytest.raises(StoreError, match="reduce your request rate"):
            store.newest()
    assert store.newest() is not None


def test_a_step_that_was_set_aside_can_be_written_once_more(
    make_store: Callable[..., ObjectStore],
) -> None:
    store = make_store()
    write(store, 1)
    store.damage_newest()
    assert store.newest() is None
    write(store, 1)
    assert store.newest() is not None


def test_what_changes_between_the_check_and_the_load_is_refused(
    make_store: Callable[..., ObjectStore],
) -> None:
    store = make_store()
    version = write(store, 1)
    assert store.newest() is not None
    store.damage_newest()
    with (
        pytest.raises(CheckpointError, match="changed after its commit"),
        store.fetched(version, 0),
    ):
        pass


def test_a_changed_manifest_is_refused(make_store: Callable[..., ObjectStore]) -> None:
    store = make_store()
    path = store.partial_folder(1) / MANIFEST
    write(store, 1)
    path.write(json.dumps({**json.loads(path.read()), "step": 7}).encode())
    with pytest.raises(CheckpointError, match=f"{path} was changed after its commit"):
        open_version(store.partial_folder(1))


@pytest.mark.parametrize("lost", NAMES)
def test_an_object_that_the_store_has_lost_before_the_commit_fails_the_save(
    make_store: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    store = make_store()
    below = ObjectPath.below
    monkeypatch.setattr(
        ObjectPath,
        "below",
        lambda path: {name: size for name, size in below(path).items() if name != lost},
    )
    with pytest.raises(CheckpointError, match=f"{lost} is missing"):
        write(store, 1)
    assert store.newest() is None


def test_the_newest_versions_stay_and_the_manifest_of_others_goes_first(
    make_store: Callable[..., ObjectStore], bucket: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(keep=2)
    for step in (1, 2, 3):
        write(store, step)
    removed: list[tuple[str, ...]] = []
    remove = ObjectPath.remove

    def note(path: ObjectPath, *named: str) -> None:
        removed.append(named)
        remove(path, *named)

    monkeypatch.setattr(ObjectPath, "remove", note)
    store.retain()
    assert removed == [(MANIFEST,), NAMES]
    assert store.steps() == [3, 2]
    assert names(bucket) == ["version-00000002", "version-00000003"]


def test_a_removal_spares_what_other_ranks_are_writing(
    make_store: Callable[..., ObjectStore], bucket: ObjectPath
) -> None:
    store = make_store(keep=1)
    put(store, 1), write(store, 2), put(store, 3)
    store.retain()
    assert names(bucket) == ["version-00000002", "version-00000003"]
    store.discard_partial()
    assert names(bucket) == ["version-00000002"]


def test_a_later_attempt_at_a_step_is_the_newer_one(
    make_store: Callable[..., ObjectStore], bucket: ObjectPath
) -> None:
    write(make_store(), 1), write(make_store(), 2)
    store = make_store(attempt=2)
    again = write(store, 1, attempt=2)
    assert again.folder.name == "version-00000001.attempt-2"
    second = write(store, 2, attempt=2)
    found = store.newest()
    assert found is not None
    assert (found.folder, found.attempt) == (second.folder, 2)
    store.retain()
    assert names(bucket) == ["version-00000001.attempt-2", "version-00000002.attempt-2"]


def test_versions_that_are_kept_aside_are_whole_and_no_longer_found(
    make_store: Callable[..., ObjectStore], bucket: ObjectPath
) -> None:
    store = make_store()
    write(store, 1)
    kept = store.keep_aside()
    assert kept == bucket / "kept-1"
    assert open_version(kept / "version-00000001").position.step == 1
    store.clear()
    assert store.steps() == []
    assert names(bucket) == ["kept-1"]
    write(store, 1)
    assert store.keep_aside() == bucket / "kept-2"


def test_a_store_that_does_not_answer_is_named_with_the_remedy(
    make_store: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", fails)
    with pytest.raises(StoreError) as raised:
        store.newest()
    said = str(raised.value)
    assert "reduce your request rate" in said
    assert "AWS_ENDPOINT_URL" in said
    assert "\n" not in said


# A run


@pytest.fixture
def plan(make_plan: Callable[..., Plan], bucket: ObjectPath) -> Plan:
    return dataclasses.replace(make_plan("e1"), checkpoint_folder=bucket)


def test_a_run_keeps_its_versions_in_the_store_and_leaves_none(
    plan: Plan, execution: Execution, bucket: ObjectPath
) -> None:
    run_cell(plan, execution)
    assert names(bucket) == [OWNER]
    events = map(json.loads, (plan.run_folder / "trace-0.jsonl").read_text().splitlines())
    durable = [event for event in events if event["event"] == "durable"]
    assert [event["step"] for event in durable] == [4, 8, 12]
    assert all(file["bytes"] for event in durable for file in event["files"])
    manifest = json.loads((plan.run_folder / "manifest.json").read_text())
    assert manifest["host"]["checkpoint_file_system"] == "memory"
    assert Plan.read(plan.run_folder / "plan.json").checkpoint_folder == bucket


@pytest.mark.parametrize("written", ["native npz", "sharded safetensors", "async safetensors"])
def test_an_interrupted_run_goes_on_from_the_store_to_the_same_bits(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    strategy, format = written.split()
    cell = dataclasses.replace(plan.cell, strategy=PluginSpec(strategy), format=format)
    plan = dataclasses.replace(plan, cell=cell)
    folder = plan.run_folder.with_name("whole")
    folder.mkdir()
    whole = dataclasses.replace(plan, run_folder=folder, checkpoint_folder=WHOLE)
    run_cell(whole, execution)
    interrupt(plan, execution, monkeypatch, steps=10)
    run_cell(plan, dataclasses.replace(execution, resume=True))
    assert json.loads((plan.run_folder / "manifest.json").read_text())["attempts"] == 2
    assert last_digest(plan) == last_digest(whole)


def test_a_save_that_the_store_refuses_ends_the_run_with_one_line(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = type(fsspec.filesystem("memory"))
    pipe_file = system.pipe_file

    def refuse(self: Any, path: str, content: bytes) -> None:
        if path.endswith("version-00000008/manifest.json"):
            fails()
        pipe_file(self, path, content)

    monkeypatch.setattr(system, "pipe_file", refuse)
    with pytest.raises(CheckpointError) as raised:
        run_cell(plan, execution)
    said = str(raised.value)
    assert "the checkpoint of step 8 cannot be written to memory://bucket" in said
    assert "reduce your request rate" in said
    monkeypatch.undo()
    store = ObjectPath(str(plan.checkpoint_folder))
    assert [name for name in store.below() if name.endswith(MANIFEST)] == [
        f"version-00000004/{MANIFEST}"
    ]


def test_versions_of_another_run_folder_are_refused(
    plan: Plan, execution: Execution, tmp_path: Path
) -> None:
    run_cell(plan, dataclasses.replace(execution, keep_after_run=1))
    (tmp_path / "other").mkdir()
    with pytest.raises(LaunchError, match=r"holds checkpoints of the run .*/run, and this is"):
        run_cell(dataclasses.replace(plan, run_folder=tmp_path / "other"), execution)


# The config


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ({"strategy": ["native", "torchsnapshot"]}, "the strategy torchsnapshot does not write to an object store: use native, sharded, async, dcp, dcp_async"),
        ({"format": ["default", "hdf5"]}, "the format hdf5 needs a file: use torch_save"),
        ({"framework": ["tensorflow"]}, "tensorflow does not write to an object store: use pytorch"),
    ],
)  # fmt: skip
def test_what_cannot_write_to_an_object_store_is_refused_before_anything_is_trained(
    matrix: dict[str, Any], said: str
) -> None:
    matrix = {"framework": ["pytorch"], **matrix}
    config = load_config({"matrix": matrix, "checkpoints": {"folder": "s3://bucket/study"}})
    with pytest.raises(ConfigError, match=rf"checkpoints.folder is 's3://bucket/study': {said}"):
        expand(config)


@pytest.mark.parametrize("strategy", ["native", "sharded", "async", "dcp", "dcp_async"])
def test_what_can_write_to_an_object_store_is_taken(strategy: str) -> None:
    matrix = {"framework": ["pytorch", "pytorch_fsdp"], "strategy": [strategy]}
    assert expand(load_config({"matrix": matrix, "checkpoints": {"folder": "s3://bucket/study/"}}))


@pytest.mark.parametrize("url", ["gs://bucket/x", "memory://x", "s3://", "s3://key:secret@bucket/x", "s3://bucket/x?y", "s3://bucket//x"])  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"use a folder, or s3://|write s3://BUCKET/PREFIX"):
        load_config({"checkpoints": {"folder": url}})


def test_a_url_is_no_path() -> None:
    assert place_of("s3://bucket/a/") / "b" == ObjectPath("s3://bucket/a/b")
    assert place_of("/bucket/a/") == Path("/bucket/a")
