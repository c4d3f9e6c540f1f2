"""The strategy `native`: its stages, at any of which a rank can be killed, and what a load leaves out on purpose."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, linear

from ckptbench.architectures import Network
from ckptbench.checkpoints import native
from ckptbench.checkpoints.native import BEGUN, STAGES, SYNCED, WRITTEN, NativeStrategy
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Position, Version
from ckptbench.digest import digests
from ckptbench.errors import CheckpointError, LaunchError
from ckptbench.frameworks.base import Arrays, Place, Sgd

FIRST, SECOND = (Position(step=step, epoch=0, step_in_epoch=step) for step in (1, 2))
RANK_0, RANK_1 = (dataclasses.replace(ALONE, rank=rank, world_size=2) for rank in (0, 1))


class Statistician(NumpyFramework):
    """Has running statistics and dropout seeds too: `statistic`, the same number in each."""

    statistic = 0.0
    forgotten: str | None = None

    def build(self, network: Network, weights: Arrays, optimizer: Sgd, batch_size: int) -> None:
        super().build(network, weights, optimizer, batch_size)
        self.momenta = {name: np.full_like(array, 3) for name, array in self.momenta.items()}

    def rank_state(self) -> Arrays:
        own = {name: np.asarray(self.statistic) for name in ("buffer/norm.mean", "seed/0")}
        return {**super().rank_state(), **own}

    def load_rank_state(self, state: Arrays) -> None:
        super().load_rank_state(state)
        self.loaded = state

    def forget(self, part: str) -> None:
        self.forgotten = part
        if part == "momentum":
            super().forget(part)


def built(kind: type[NumpyFramework] = NumpyFramework, *, seed: int = 1) -> NumpyFramework:
    """A framework at its first step; `seed` is that of its weights and of the global generators."""
    framework = kind.join(ALONE, seed=seed, deterministic=True)
    network = linear((4, 4, 1), 3)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(network, dict(network.initial_weights(seed)), sgd, 8)
    return framework


def strategy(folder: Path, framework: NumpyFramework, place: Place = ALONE) -> NativeStrategy:
    return NativeStrategy(framework, place, CheckpointStore(folder, keep=2), "npz")


def newest(folder: Path) -> Version:
    version = CheckpointStore(folder, keep=2).newest()
    assert version is not None
    return version


def same(one: Arrays, other: Arrays) -> bool:
    return digests(one) == digests(other)


# Stages


def stages_of_a_save(folder: Path, place: Place) -> list[tuple[str, set[str]]]:
    """Each stage that the rank passes, and what lies in the staging folder then."""
    seen: list[tuple[str, set[str]]] = []

    def look(stage: str) -> None:
        (staging,) = folder.glob("version-*.partial")
        seen.append((stage, {path.name for path in staging.iterdir()}))

    store = CheckpointStore(folder, keep=2)
    NativeStrategy(built(), place, store, "npz", at_stage=look).save(FIRST)
    return seen


def test_rank_0_passes_every_stage_and_the_others_those_of_their_own_files(tmp_path: Path) -> None:
    assert stages_of_a_save(tmp_path, RANK_1) == [(BEGUN, set()), (WRITTEN, {"rank-1.npz"})]
    whole = {"rank-0.npz", "rank-1.npz", "model.npz"}
    assert stages_of_a_save(tmp_path, RANK_0) == [
        (BEGUN, {"rank-1.npz"}),
        (WRITTEN, whole),
        (SYNCED, whole),
    ]
    assert newest(tmp_path).files.keys() == whole


def test_a_rank_puts_its_own_file_on_stable_storage_before_rank_0_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(native, "fsync", lambda path: order.append(path.name))
    framework = built()
    monkeypatch.setattr(framework, "barrier", lambda: order.append("barrier"))
    strategy(tmp_path, framework, RANK_1).save(FIRST)
    assert order == ["rank-1.npz", "barrier", "barrier"]


@pytest.mark.parametrize("place", [RANK_0, RANK_1], ids=["rank 0", "rank 1"])
def test_a_rank_that_another_one_leaves_alone_does_not_blame_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    framework = built()

    def barrier() -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(framework, "barrier", barrier)
    with pytest.raises(
        LaunchError, match=r"another rank died in the checkpoint of step 1, .*by peer"
    ):
        strategy(tmp_path, framework, place).save(FIRST)


def save_and_die(folder: Path, place: Place, at: str) -> None:
    def die(stage: str) -> None:
        if stage == at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = CheckpointStore(folder, keep=2)
    NativeStrategy(built(seed=2), place, store, "npz", at_stage=die).save(SECOND)


@pytest.mark.parametrize(
    ("place", "stage"),
    [*((RANK_0, stage) for stage in STAGES), (RANK_1, BEGUN), (RANK_1, WRITTEN)],
    ids=lambda value: value if isinstance(value, str) else f"rank {value.rank}",
)
def test_a_kill_at_any_stage_leaves_the_version_before_it_and_a_partial_one_to_discard(
    tmp_path: Path, place: Place, stage: str
) -> None:
    framework = built()
    for each in (RANK_1, RANK_0):
        strategy(tmp_path, framework, each).save(FIRST)
    if place == RANK_0:  # its peer has written what is its own
        strategy(tmp_path, framework, RANK_1).save(SECOND)
    rank = multiprocessing.get_context("fork").Process(
        target=save_and_die, args=(tmp_path, place, stage)
    )
    rank.start()
    rank.join(30)
    assert rank.exitcode == -signal.SIGKILL
    assert (tmp_path / "version-00000002.partial").is_dir()

    version = newest(tmp_path)
    assert version.position == FIRST
    other = built(seed=3)
    strategy(tmp_path, other, RANK_0).load(version)
    assert same(other.tensors(), framework.tensors())
    CheckpointStore(tmp_path, keep=2).discard_partial()
    assert [path.name for path in tmp_path.iterdir()] == ["version-00000001"]


# Omissions


@pytest.fixture
def saved(tmp_path: Path) -> dict[int, Arrays]:
    """The state by rank that lies in the version of two ranks in `tmp_path`."""
    states = {}
    for place in (RANK_1, RANK_0):
        framework = built(Statistician, seed=10 + place.rank)
        framework.statistic = 10.0 + place.rank
        states[place.rank] = framework.rank_state()
        strategy(tmp_path, framework, place).save(FIRST)
    return states


def restarted(folder: Path, place: Place, omit: str) -> tuple[Statistician, Arrays]:
    """A framework of another seed that has loaded; and its state before it did."""
    framework = built(Statistician, seed=20)
    framework.statistic = 20.0
    before = framework.rank_state()
    strategy(folder, framework, place).load(newest(folder), omit)
    assert isinstance(framework, Statistician)
    return framework, before


def differing(one: Arrays, other: Arrays) -> set[str]:
    """What the names of the arrays that differ begin with."""
    return {name.split("/")[0] for name, _ in digests(one).items() ^ digests(other).items()}


@pytest.mark.parametrize("omit", ["nothing", "position"])
@pytest.mark.parametrize("place", [RANK_0, RANK_1], ids=["rank 0", "rank 1"])
def test_a_load_that_omits_nothing_gives_all_back(
    tmp_path: Path, saved: dict[int, Arrays], place: Place, omit: str
) -> None:
    framework, _ = restarted(tmp_path, place, omit)
    assert same(framework.loaded, saved[place.rank])
    assert framework.forgotten is None
    assert all((momentum == 3).all() for momentum in framework.momenta.values())


@pytest.mark.parametrize(("omit", "prefix"), [("random", "random"), ("dropout", "seed")])
@pytest.mark.parametrize("place", [RANK_0, RANK_1], ids=["rank 0", "rank 1"])
def test_what_a_load_omits_of_a_rank_stays_as_the_new_process_has_it(
    tmp_path: Path, saved: dict[int, Arrays], place: Place, omit: str, prefix: str
) -> None:
    framework, before = restarted(tmp_path, place, omit)
    assert differing(framework.loaded, saved[place.rank]) == {prefix}
    assert prefix not in differing(framework.loaded, before)


def test_without_their_statistics_other_ranks_get_those_of_rank_0(
    tmp_path: Path, saved: dict[int, Arrays]
) -> None:
    first, second = (restarted(tmp_path, place, "statistics")[0] for place in (RANK_0, RANK_1))
    assert same(first.loaded, saved[0])
    assert differing(second.loaded, saved[1]) == {"buffer"}
    assert second.loaded["buffer/norm.mean"] == saved[0]["buffer/norm.mean"] == 10.0


@pytest.mark.parametrize("omit", ["momentum", "first_update"])
def test_what_is_the_frameworks_is_forgotten_once_all_is_loaded(
    tmp_path: Path, saved: dict[int, Arrays], omit: str
) -> None:
    framework, _ = restarted(tmp_path, RANK_1, omit)
    assert framework.forgotten == omit
    assert same(framework.loaded, saved[1])
    expected = 0 if omit == "momentum" else 3
    assert all((momentum == expected).all() for momentum in framework.momenta.values())


@pytest.mark.parametrize("omit", ["dropout", "statistics"])
def test_an_omission_of_what_is_not_there_is_refused(tmp_path: Path, omit: str) -> None:
    strategy(tmp_path, built()).save(FIRST)
    with pytest.raises(CheckpointError, match=f"omit is {omit}, and this rank's state has nothing"):
        strategy(tmp_path, built()).load(newest(tmp_path), omit)


# Loading


def test_a_rank_reads_the_files_of_the_format_and_its_own(
    tmp_path: Path, saved: dict[int, Arrays]
) -> None:
    version = newest(tmp_path)
    for rank in (0, 1):
        files = NativeStrategy.files_read(version, rank)
        assert {path.name for path in files} == {"model.npz", f"rank-{rank}.npz"}
        assert all(path.parent == version.folder for path in files)


@pytest.mark.parametrize("change", [{"world_size": 2}, {"format": "hdf5"}])
def test_a_version_of_other_ranks_or_format_is_refused(
    tmp_path: Path, change: dict[str, int | str]
) -> None:
    strategy(tmp_path, built()).save(FIRST)
    version = dataclasses.replace(newest(tmp_path), **change)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"written by \d ranks as .*, this run has 1 ranks"):
        strategy(tmp_path, built()).load(version)
