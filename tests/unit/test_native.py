"""The strategy `native` as it is run: its stages, at any of which a rank can be killed, and its files."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, linear
from strategies import timed

from ckptbench.checkpointing import store as store_module
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version, open_version
from ckptbench.common.errors import CheckpointError, LaunchError
from ckptbench.frameworks.contract import Arrays, Sgd, TrainSpec, put_arrays
from ckptbench.matrix.registry import REMOVING, STRATEGIES, SYNCED
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position
from ckptbench.training.digest import digests
from tests.study.selection import FULL

FIRST, SECOND, THIRD = (Position(step=step, epoch=0, step_in_epoch=step) for step in (1, 2, 3))
RANK_0, RANK_1 = (dataclasses.replace(ALONE, rank=rank, world_size=2) for rank in (0, 1))


def built(kind: type[NumpyFramework] = NumpyFramework, *, seed: int = 1) -> NumpyFramework:
    """A framework at its first step; `seed` is that of its weights and of the global generators."""
    framework = kind.join(ALONE, seed=seed, deterministic=True)
    network = linear((4, 4, 1), 3)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(TrainSpec(network, dict(network.initial_weights(seed)), sgd))
    return framework


def strategy(
    folder: Path, framework: NumpyFramework, world: RankContext = ALONE
) -> CheckpointManager:
    return timed(CheckpointStore(folder, keep=2), framework, world, trace=traces(folder, world))


def traces(folder: Path, world: RankContext) -> Path:
    """Beside the store, which holds nothing but versions."""
    return folder.with_name(f"{folder.name}-trace-{world.rank}.jsonl")


def newest(folder: Path) -> Version:
    version = CheckpointStore(folder, keep=2).newest()
    assert version is not None
    return version


def same(one: Arrays, other: Arrays) -> bool:
    return digests(one) == digests(other)


# Stages


def stages_of_a_save(folder: Path, world: RankContext) -> list[tuple[str, set[str]]]:
    """Each stage that the rank passes, and what lies in the staging folder then."""
    seen: list[tuple[str, set[str]]] = []

    def look(stage: str) -> None:
        (staging,) = folder.glob("version-*.partial")
        seen.append((stage, {path.name for path in staging.iterdir()}))

    store, trace = CheckpointStore(folder, keep=2), traces(folder, world)
    timed(store, built(), world, on_stage=look, trace=trace).save(FIRST)
    return seen


def test_rank_0_passes_every_stage_and_the_others_those_of_their_own_files(tmp_path: Path) -> None:
    assert stages_of_a_save(tmp_path, RANK_1) == [
        ("begun", set()),
        ("written", {"rank-1.safetensors"}),
    ]
    whole = {"rank-0.safetensors", "rank-1.safetensors", "model.npz"}
    assert stages_of_a_save(tmp_path, RANK_0) == [
        ("begun", {"rank-1.safetensors", "done-1.json"}),
        ("written", {*whole, "done-1.json"}),
        (SYNCED, {*whole, "manifest.json"}),
    ]
    assert newest(tmp_path).files.keys() == whole


def test_a_rank_puts_its_own_file_on_stable_storage_before_rank_0_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr("ckptbench.checkpointing.store.fsync", lambda path: order.append(path.name))
    framework = built()
    monkeypatch.setattr(framework, "barrier", lambda: order.append("barrier"))
    strategy(tmp_path, framework, RANK_1).save(FIRST)
    assert order == ["rank-1.safetensors", "barrier", "barrier"]


@pytest.mark.parametrize("world", [RANK_0, RANK_1], ids=["rank 0", "rank 1"])
def test_a_rank_that_another_one_leaves_alone_does_not_blame_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: RankContext
) -> None:
    framework = built()

    def barrier() -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(framework, "barrier", barrier)
    with pytest.raises(
        LaunchError, match=r"another rank died in the checkpoint of step 1, .*by peer"
    ):
        strategy(tmp_path, framework, world).save(FIRST)


def save_and_die(folder: Path, world: RankContext, at: str) -> None:
    def die(stage: str) -> None:
        if stage == at:
            os.kill(os.getpid(), signal.SIGKILL)

    store, trace = CheckpointStore(folder, keep=2), traces(folder, world)
    timed(store, built(seed=2), world, on_stage=die, trace=trace).save(SECOND)


@pytest.mark.parametrize(
    ("world", "stage"),
    [
        *((RANK_0, stage) for stage in (*STRATEGIES["native"].stages, SYNCED)),
        (RANK_1, "begun"),
        (RANK_1, "written"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"rank {value.rank}",
)
def test_a_kill_at_any_stage_leaves_the_version_before_it_and_a_partial_one_to_discard(
    tmp_path: Path, world: RankContext, stage: str
) -> None:
    framework = built()
    for each in (RANK_1, RANK_0):
        strategy(tmp_path, framework, each).save(FIRST)
    if world == RANK_0:  # its peer has written what is its own
        strategy(tmp_path, framework, RANK_1).save(SECOND)
    rank = multiprocessing.get_context("fork").Process(
        target=save_and_die, args=(tmp_path, world, stage)
    )
    rank.start()
    rank.join(30)
    assert rank.exitcode == -signal.SIGKILL
    assert (tmp_path / "version-00000002.partial").is_dir()

    version = newest(tmp_path)
    assert version.position == FIRST
    other = built(seed=3)
    strategy(tmp_path, other, RANK_0).load(version)
    assert same(other.normalized_state(), framework.normalized_state())
    CheckpointStore(tmp_path, keep=2).discard_partial()
    assert [path.name for path in tmp_path.iterdir()] == ["version-00000001"]


def remove_a_file_and_die(folder: Path, *, first: str) -> None:
    """In the place of the removal of a version."""
    (folder / first).unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def save_thrice_and_die(folder: Path, how: str) -> None:
    def die(stage: str) -> None:
        if stage == REMOVING and how == REMOVING:
            os.kill(os.getpid(), signal.SIGKILL)

    store_module.remove_or_warn = remove_a_file_and_die  # type: ignore[assignment]
    native = timed(
        CheckpointStore(folder, keep=2), built(), on_stage=die, trace=traces(folder, ALONE)
    )
    for position in (FIRST, SECOND, THIRD):
        native.save(position)
    native.close()


@pytest.mark.parametrize("how", [REMOVING, "half-way"])
def test_a_kill_while_old_versions_are_removed_leaves_the_newest_and_the_rest_goes_later(
    tmp_path: Path, how: str
) -> None:
    rank = multiprocessing.get_context("fork").Process(
        target=save_thrice_and_die, args=(tmp_path, how)
    )
    rank.start()
    rank.join(60)
    assert rank.exitcode == -signal.SIGKILL
    store = CheckpointStore(tmp_path, keep=2)
    assert newest(tmp_path).position == THIRD
    files = {path.name for path in (tmp_path / "version-00000001").iterdir()}
    assert len(files) == (3 if how == REMOVING else 2)
    store.retain()
    assert names(tmp_path) == ["version-00000002", "version-00000003"]
    for name in names(tmp_path):
        open_version(tmp_path / name)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


WRITER = """
import itertools, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from test_native import ALONE, Position, built, strategy
native = strategy(Path(sys.argv[1]), built())
for step in itertools.count(1):
    native.save(Position(step=step, epoch=0, step_in_epoch=step))
    print(step, flush=True)
"""


@pytest.mark.parametrize("seed", range(5 if FULL else 1))
def test_a_kill_at_any_moment_of_saves_and_removals_leaves_the_newest_complete_version(
    tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / "checkpoints"
    root = Path(__file__).parents[2]
    paths = [str(Path(__file__).parent), str(root / "src"), str(root)]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), *paths], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for _ in range(3):  # from the third save on an old version is removed
        assert writer.stdout.readline()
    time.sleep(np.random.default_rng(seed).uniform(0, 0.05))
    writer.send_signal(signal.SIGKILL)
    reported = [int(line) for line in writer.communicate()[0].split()]
    assert newest(folder).position.step >= max(reported, default=3)
    other = built(seed=3)
    strategy(folder, other).load(newest(folder))
    assert same(other.normalized_state(), built().normalized_state())


# Loading


def test_a_rank_reads_the_files_of_the_format_and_its_own(tmp_path: Path) -> None:
    for world in (RANK_1, RANK_0):
        strategy(tmp_path, built(), world).save(FIRST)
    version = newest(tmp_path)
    for rank in (0, 1):
        files = version.read_by(rank)
        assert {file.name for file in files} == {"model.npz", f"rank-{rank}.safetensors"}


def test_a_version_of_another_format_is_refused(tmp_path: Path) -> None:
    strategy(tmp_path, built()).save(FIRST)
    version = dataclasses.replace(newest(tmp_path), format="hdf5")
    with pytest.raises(CheckpointError, match="written as hdf5, this run writes npz"):
        strategy(tmp_path, built()).load(version)


def test_a_version_of_the_ranks_that_were_left_is_loaded_by_all(tmp_path: Path) -> None:
    written = built()
    strategy(tmp_path, written).save(FIRST)
    for world in (RANK_0, RANK_1):
        other = built(seed=3)
        strategy(tmp_path, other, world).load(newest(tmp_path))
        assert same(other.normalized_state(), written.normalized_state())


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("model/head.bias", None, "model/head.bias is not in both"),
        ("model/late", np.zeros(3, np.float32), "model/late is not in both"),
        ("model/head.bias", np.zeros((1, 3), np.float32), r"has shape \(1, 3\) and type float32, here \(3,\)"),
        ("model/head.bias", np.zeros(3), "and type float64, here .* and float32"),
    ],
)  # fmt: skip
def test_arrays_of_another_state_are_refused(
    name: str, array: np.ndarray | None, words: str
) -> None:
    handles = built().handles()
    changed = {**{handle.name: handle.read() for handle in handles}, name: array}
    with pytest.raises(ValueError, match=words):
        put_arrays(handles, {name: each for name, each in changed.items() if each is not None})
