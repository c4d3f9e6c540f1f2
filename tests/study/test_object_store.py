"""Checkpoints in an object store on loopback, with what can go wrong there: nothing that is not whole is ever taken for whole."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec.config
import pytest
import yaml
from checkout import ROOT, Checkout
from s3fs import S3FileSystem
from warm.environments import warm_environments

from ckptbench.checkpointing.object_store import ObjectStore
from ckptbench.checkpointing.uploads import uploading
from ckptbench.checkpointing.version import MANIFEST, Version
from ckptbench.common.errors import CheckpointError
from ckptbench.common.objects import ObjectPath
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.launch.folder_locks import OWNER
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.training import Training
from ckptbench.run.identity import Identity
from ckptbench.run.layout import trace_path
from ckptbench.run.position import Position
from tests.object_store import ObjectStore as Server
from tests.object_store import object_store

PROCESS = {"dcp_async": {"checkpointer": "process"}}
TINY = "config/studies/tiny-determinism.yaml"
CUT = "connect|closed|reset"
"""What the libraries say of a connection that has ended."""
PART = 5 << 20
"""The smallest part of an upload."""
TRAINING = Training(
    seed=1,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=0.0,
    steps_per_epoch=4,
    test_samples=16,
    warmup_steps=1,
    keep_during_run=2,
)
CELL = Cell(
    framework="numpy",
    model="linear",
    dataset="synthetic",
    ranks=1,
    batch_size=8,
    epochs=3,
    strategy=PluginSpec("native"),
    format="npz",
    interval=Interval.parse("s4"),
)


IDENTITY = Identity(
    run_id="0" * 32, cell={}, training={}, dataset_sha256="1" * 64, lock_sha256="2" * 64
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    S3FileSystem.clear_instance_cache()  # each server has its own port
    with object_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setitem(fsspec.config.conf, "s3", {"default_block_size": PART})
        monkeypatch.setattr(S3FileSystem, "retries", 2)
        yield store


@pytest.fixture
def store(server: Server, tmp_path: Path) -> ObjectStore:
    folder = ObjectPath(f"{server.url}/run/checkpoints")
    return ObjectStore(folder, keep=2, marks=tmp_path / "marks", fetch_to=tmp_path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "synthetic"
    shape = {"height": 4, "width": 4, "channels": 1, "classes": 3}
    prepare("synthetic", folder, {**shape, "train_samples": 64, "test_samples": 16})
    return folder


def train(dataset: Path, folder: Path, checkpoints: str) -> tuple[int, str]:
    """A run without a framework, with versions of the steps 4, 8 and 12. Returns its exit code and its log."""
    done = subprocess.run(
        [
            sys.executable, "-m", "ckptbench.workflow", "train-cell", "--resume",
            "--cell", json.dumps(CELL.to_json()), "--training", json.dumps(dataclasses.asdict(TRAINING)),
            "--dataset", str(dataset), "--runs", str(folder), "--checkpoints", checkpoints,
            "--environment", str(Path(sys.prefix)), "--lock", "envs/data.txt",
        ],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stderr


def whole(server: Server) -> list[str]:
    """The versions that have a manifest."""
    ends = f"/{MANIFEST}"
    return [
        key.removesuffix(ends).rpartition("/")[2] for key in server.objects() if key.endswith(ends)
    ]


def last_digest(folder: Path) -> dict[str, str]:
    lines = trace_path(folder / CELL.id, 0).read_text().splitlines()
    digests: list[dict[str, Any]] = [each for each in map(json.loads, lines) if each["event"] == "digest"]  # fmt: skip
    found: dict[str, str] = digests[-1]["tensors"]
    return found


def write(store: ObjectStore, step: int, *, size: int = 1000) -> Version:
    """A version of one file."""
    staging = store.partial_folder(step)
    with uploading(staging / "model.bin") as upload:
        for _ in range(size // 1000):
            upload.write(bytes([step]) * 1000)
    position = Position(step=step, epoch=0, step_in_epoch=step)
    files = [upload.file("state", None)]
    version = store.sync(
        staging, files, identity=IDENTITY, position=position, world_size=1, format="bin"
    ).version
    store.commit(staging, version)
    return version


def newest_step(store: ObjectStore) -> int:
    version = store.newest()
    assert version is not None
    return version.position.step


def test_an_upload_in_parts_that_ends_half_way_leaves_nothing_behind(
    server: Server, store: ObjectStore
) -> None:
    write(store, 1, size=3 * PART)
    assert sum(request.kind == "part" for request in server.requests) >= 3
    server.fail("cut", "part", key="version-00000002", first=2)
    with pytest.raises(Exception, match=CUT):
        write(store, 2, size=3 * PART)
    assert server.unfinished() == []
    assert whole(server) == ["version-00000001"]
    server.fail("refuse", "abort")
    with pytest.raises(Exception, match=CUT):
        write(store, 2, size=3 * PART)
    assert server.unfinished() == ["run/checkpoints/version-00000002/model.bin"]
    server.mend()
    store.discard_partial()
    assert server.unfinished() == []
    assert newest_step(store) == 1
    with store.fetched(write(store, 2, size=3 * PART), rank=0) as folder:
        assert (folder / "model.bin").read_bytes() == bytes([2]) * (3 * PART // 1000 * 1000)


def test_an_object_that_was_lost_after_its_put_is_no_part_of_a_version(
    server: Server, store: ObjectStore
) -> None:
    write(store, 1)
    server.fail("lose", "put", key="version-00000002/model.bin")
    with pytest.raises(CheckpointError, match=r"version-00000002/model.bin is missing"):
        write(store, 2)
    server.mend()
    server.fail("lose", "put", key=f"version-00000003/{MANIFEST}")
    write(store, 3)
    assert newest_step(store) == 1
    server.mend()
    write(store, 4)
    server.client.delete_object(
        Bucket=server.bucket, Key="run/checkpoints/version-00000004/model.bin"
    )
    assert newest_step(store) == 1
    store.clear()
    assert server.objects() == {}


def test_a_run_ends_with_one_line_when_the_store_refuses_and_goes_on_when_it_does_not(
    server: Server, dataset: Path, tmp_path: Path
) -> None:
    server.fail("refuse", "put", key="version-00000008/model.npz")
    code, said = train(dataset, tmp_path / "runs", f"{server.url}/study")
    assert code == 1
    assert re.search(r"CheckpointError: the checkpoint of step 8 cannot be written to s3://.*reduce your request rate.*AWS_ENDPOINT_URL", said), said  # fmt: skip
    assert whole(server) == ["version-00000004"]
    server.mend()
    server.fail("slow", "put", wait_s=0.2)
    server.fail("refuse", "put", key="version-00000012", times=2)
    code, said = train(dataset, tmp_path / "runs", f"{server.url}/study")
    assert code == 0, said
    assert "goes on from s3://" in said
    assert [*server.objects()] == [f"study/{CELL.id}/checkpoints/{OWNER}"]
    assert train(dataset, tmp_path / "alone", str(tmp_path / "disk"))[0] == 0
    assert last_digest(tmp_path / "runs") == last_digest(tmp_path / "alone")
    written = "".join(path.read_text() for path in (tmp_path / "runs").rglob("*.json*"))
    assert server.endpoint in written
    assert server.environment["AWS_SECRET_ACCESS_KEY"] not in re.findall(r"\w+", written)


@pytest.mark.frameworks("pytorch")
def test_a_study_of_pytorch_on_an_object_store_proves_its_restarts_and_decides(
    server: Server, tmp_path: Path
) -> None:
    checkout = Checkout.make(tmp_path / "checkout", environments=warm_environments())
    tiny = yaml.safe_load((checkout.folder / TINY).read_text())
    tiny["matrix"] |= {
        "framework": "pytorch",
        "epochs": 2,
        "strategy": ["native", "dcp", PROCESS],
        "faults": "none",
    }
    killed = {"framework": "pytorch", "ranks": 2, "strategy": "dcp", "faults": "killed_inside"}
    study = {**tiny, "exclude": [], "include": [killed], "repeats": 1}
    study["checkpoints"] = {"folder": f"{server.url}/study"}
    (checkout.folder / "config/studies/objects.yaml").write_text(yaml.safe_dump(study))
    made = (
        "results/tables/resume_proof.parquet",
        "results/figures/stall.pdf",
        "results/answer.txt",
    )
    done = checkout.run(*made, study="config/studies/objects.yaml")
    assert done.returncode == 0, done.stdout
    proof, consistency = checkout.table("resume_proof"), checkout.table("consistency")
    (row,) = proof[proof["history"] == "killed_inside"].to_dict("records")
    assert (row["strategy"], row["attempts"], row["bit_equal"]) == ("dcp", 2, True)
    assert consistency["consistent"].all()
    assert (consistency["versions_compared"] >= 2).all()
    assert {*checkout.table("runs")["checkpoint_file_system"]} == {"s3"}
    assert (checkout.table("checkpoints")["durable_s"].dropna() > 0).all()
    assert {key.rpartition("/")[2] for key in server.objects()} == {OWNER}
