"""Whatever happens to versions on disk: what is loaded is, bit for bit, what was saved at that step, or nothing is."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from corruptions import ALONE as DAMAGES_ALONE
from corruptions import OF_A_FILE, OF_A_VERSION, Damage, Random
from numpy_framework import ALONE, NumpyFramework, linear
from strategies import timed

from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version, version_name
from ckptbench.frameworks.contract import Arrays, Format, Sgd, TrainSpec
from ckptbench.run.position import Position
from ckptbench.training.digest import digests
from tests.study.selection import FULL

ALL_SEEDS = 9
SEEDS = range(ALL_SEEDS if FULL else 1)
STEPS = (10, 20, 30)
RANKS = tuple(dataclasses.replace(ALONE, rank=rank, world_size=2) for rank in (0, 1))
EACH_RANKS = ("rank-0.safetensors", "rank-1.safetensors", "manifest.json")
FILES = {
    "one_file": ("model.npz", *EACH_RANKS),
    "two_files": ("model.weights.npz", "model.optimizer.npz", *EACH_RANKS),
}
CASES = ALL_SEEDS * (
    len(OF_A_FILE) * sum(map(len, FILES.values())) + len(OF_A_VERSION) * len(FILES)
)
SECOND, THIRD = 1 / 3, 1 / 10
"""The chance that the second newest version is damaged too, and the oldest."""

PARTS = {"model.weights.npz": "model/", "model.optimizer.npz": "optimizer/"}


def save_parts(framework: NumpyFramework, path: Path) -> None:
    for name, prefix in PARTS.items():
        part = {
            key: array
            for key, array in framework.normalized_state().items()
            if key.startswith(prefix)
        }
        np.savez(path.with_name(name), **part)  # type: ignore[arg-type]


def load_parts(framework: NumpyFramework, path: Path) -> None:
    with np.load(path.with_name("model.weights.npz")) as weights:
        framework.weights = {name: weights[f"model/{name}"] for name in framework.weights}
    with np.load(path.with_name("model.optimizer.npz")) as momenta:
        framework.momenta = {name: momenta[f"optimizer/{name}"] for name in framework.momenta}


class Formatted(NumpyFramework):
    """Writes weights and optimizer in one file, or in two."""

    formats: ClassVar = {
        "one_file": NumpyFramework.formats["npz"],
        "two_files": Format("model", save_parts, load_parts),
    }

    @classmethod
    def built(cls, *, seed: int) -> Formatted:
        framework = cls.join(ALONE, seed=seed, deterministic=True)
        network = linear((4, 4, 1), 3)
        sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
        framework.build(TrainSpec(network, dict(network.initial_weights(seed)), sgd))
        return framework

    def all_state(self) -> Arrays:
        return {**self.normalized_state(), **self.local_state()}


@dataclass(frozen=True)
class Original:
    """Three versions of two ranks as they were committed."""

    folder: Path
    format: str
    states: dict[tuple[int, int], dict[str, str]]
    """Digests of every array by step and rank."""

    def newest_unchanged(self, folder: Path) -> int | None:
        """Of a damaged copy, by comparing bytes, and what the JSON of manifests means: white space in one is no damage."""
        same = (
            step
            for step in reversed(STEPS)
            if contents(folder / version_name(step)) == contents(self.folder / version_name(step))
        )
        return next(same, None)


def contents(version: Path) -> dict[str, bytes | None]:
    """Bytes by name; None for what is no regular file, nothing for what is no folder."""
    if version.is_symlink() or not version.is_dir():
        return {}
    return {path.name: content(path) for path in version.iterdir()}


def content(path: Path) -> bytes | None:
    if path.is_symlink() or not path.is_file():
        return None
    return path.read_bytes().rstrip() if path.suffix == ".json" else path.read_bytes()


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Original]:
    return {format: save_all(tmp_path_factory.mktemp(format), format) for format in FILES}


def save_all(folder: Path, format: str) -> Original:
    """Both ranks train a step before each version, each with generators of its own."""
    states = {}
    store = CheckpointStore(folder, keep=len(STEPS))
    random = np.random.default_rng(0)
    framework = Formatted.built(seed=0)
    for step in STEPS:
        framework.step(random.random((8, 4, 4, 1), np.float32), random.integers(3, size=8))
        for place in reversed(RANKS):  # rank 0 commits
            Formatted.join(place, seed=step + place.rank, deterministic=True)
            states[step, place.rank] = digests(framework.all_state())
            strategy = timed(store, framework, place, format=format)
            strategy.save(Position(step=step, epoch=1, step_in_epoch=step % 4))
    return Original(folder, format, states)


def test_the_versions_differ_in_every_file_and_every_part_of_the_state(
    originals: dict[str, Original],
) -> None:
    """Or a swap would be no damage."""
    for original in originals.values():
        first, *others = (contents(original.folder / version_name(step)) for step in STEPS)
        assert first.keys() == set(FILES[original.format])
        assert all(first[name] != other[name] for other in others for name in first)
        distinct = {tuple(state.items()) for state in original.states.values()}
        assert len(distinct) == len(STEPS) * len(RANKS)


def test_at_least_a_thousand_cases_can_be_tried() -> None:
    assert CASES >= 1000


@dataclass(frozen=True)
class Copy:
    """A copy of the versions, to be damaged."""

    folder: Path
    random: Random
    case: str

    def damage(self, name: str, damage: Damage, files: tuple[str, ...]) -> None:
        """Do it to the newest version, or a file in it; and sometimes something to a file of older ones."""
        damage(self.folder / version_name(STEPS[-1]) / name, self.random)
        for step, chance in zip(STEPS[-2::-1], (SECOND, THIRD), strict=True):
            if self.random.random() < chance:
                another = DAMAGES_ALONE[self.random.integers(len(DAMAGES_ALONE))]
                path = self.folder / version_name(step) / str(self.random.choice(files))
                another(path, self.random)


def copies(original: Original, folder: Path, case: str) -> Iterator[Copy]:
    for seed in SEEDS:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original.folder, folder)
        yield Copy(
            folder, np.random.default_rng([zlib.crc32(case.encode()), seed]), f"{case} {seed}"
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory where that can be: thousands of files are copied and deleted, and no storage is tested."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(dir=parent) as name:
        yield Path(name)


Try = Callable[[str, str, Damage], None]


@pytest.fixture
def attempt(folder: Path, originals: dict[str, Original], caplog: pytest.LogCaptureFixture) -> Try:
    """Damages a file of the newest version of a copy, or with no name the version, and checks; for every seed."""

    def attempt(format: str, name: str, damage: Damage) -> None:
        case = f"{damage.__name__} {format} {name}"
        for copy in copies(originals[format], folder / "copy", case):
            copy.damage(name, damage, FILES[format])
            caplog.clear()
            check(originals[format], copy, caplog)

    return attempt


@pytest.mark.parametrize("damage", OF_A_FILE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(
    ("format", "name"), [(format, name) for format, names in FILES.items() for name in names]
)
def test_a_damaged_file_is_never_loaded(
    attempt: Try, format: str, name: str, damage: Damage
) -> None:
    attempt(format, name, damage)


@pytest.mark.parametrize("damage", OF_A_VERSION, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("format", FILES)
def test_a_damaged_version_is_never_loaded(attempt: Try, format: str, damage: Damage) -> None:
    attempt(format, "", damage)


def check(original: Original, copy: Copy, caplog: pytest.LogCaptureFixture) -> None:
    """The newest unchanged version is taken, gives back its state, and newer ones are named in the log."""
    unchanged = original.newest_unchanged(copy.folder)
    there = {path.name for path in copy.folder.iterdir() if "." not in path.name}
    store = CheckpointStore(copy.folder, keep=1)
    version = store.newest()
    if version is not None:
        check_content(original, version, copy.case)
    assert (version and version.position.step) == unchanged, copy.case
    newer = {name for name in there if version is None or name > version.folder.name}
    assert all(any(name in line for line in caplog.messages) for name in newer), copy.case
    store.discard_partial()
    store.retain()
    left = [path.name for path in copy.folder.iterdir()]
    assert left == ([version.folder.name] if version else []), copy.case


def check_content(original: Original, version: Version, case: str) -> None:
    step = version.position.step
    assert version.position == Position(step=step, epoch=1, step_in_epoch=step % 4), case
    for place in RANKS:
        framework = Formatted.built(seed=99)
        store = CheckpointStore(version.folder.parent, keep=1)
        timed(store, framework, place, format=original.format).load(version)
        assert digests(framework.all_state()) == original.states[step, place.rank], case
