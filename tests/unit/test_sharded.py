"""The strategy `sharded`: shards of several ranks, which any number of ranks can load."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, linear
from strategies import timed

from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.pieces import Layout, Piece, pieces_in, write_pieces
from ckptbench.checkpointing.state_files import (
    FORMAT,
    bytes_of,
    load_own,
    own_name,
    own_shard,
    save_own,
    shard_name,
)
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Sgd, TensorHandle, TrainSpec
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.events import File
from ckptbench.run.position import Position

FIRST = Position(step=1, epoch=0, step_in_epoch=1)
SHARDED = PluginSpec("sharded")


class Normed(NumpyFramework):
    """With running statistics, in which ranks differ."""

    statistics: Arrays

    def local_state(self) -> Arrays:
        return {**super().local_state(), **{f"buffer/{n}": a for n, a in self.statistics.items()}}

    def load_local_state(self, state: Arrays) -> None:
        super().load_local_state({n: a for n, a in state.items() if not n.startswith("buffer/")})
        self.statistics = {
            name.removeprefix("buffer/"): array
            for name, array in state.items()
            if name.startswith("buffer/")
        }


def world(rank: int, world_size: int) -> RankContext:
    return dataclasses.replace(ALONE, rank=rank, world_size=world_size)


def built(rank: int, *, classes: int = 3) -> Normed:
    """A rank whose momentum is no constant, and whose statistics are its own."""
    framework = Normed.join(world(rank, 3), seed=1, deterministic=True)
    network = linear((4, 4, 1), classes)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(TrainSpec(network, dict(network.initial_weights(1)), sgd))
    random = np.random.default_rng(7)
    for momentum in framework.momenta.values():
        momentum[...] = random.standard_normal(momentum.shape)
    framework.statistics = {"mean": np.full(3, rank, np.float32)}
    return framework


def strategy(
    folder: Path, framework: NumpyFramework, where: RankContext, spec: PluginSpec = SHARDED
) -> CheckpointManager:
    trace = folder.with_name(f"trace-{where.world_size}-{where.rank}.jsonl")
    store = CheckpointStore(folder, keep=2)
    return timed(store, framework, where, format=FORMAT, spec=spec, trace=trace)


def saved(folder: Path, world_size: int) -> Version:
    """Rank 0 commits, so it comes last here, where no rank waits for another."""
    for rank in reversed(range(world_size)):
        strategy(folder, built(rank), world(rank, world_size)).save(FIRST)
    version = CheckpointStore(folder, keep=2).newest()
    assert version is not None
    return version


class Elsewhere(Normed):
    """Its memory cannot be written to, as that of a GPU or of TensorFlow."""

    def handles(self) -> list[TensorHandle]:
        return [
            dataclasses.replace(handle, read=partial(np.copy, handle.read()), in_place=False)
            for handle in super().handles()
        ]


class Tied(Normed):
    """Its first tensor has another name, too."""

    def handles(self) -> list[TensorHandle]:
        first, *others = super().handles()
        return [dataclasses.replace(first, aliases=("model/embedding",)), *others]


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        (Tied, Normed, "the other names model/embedding in state-0.safetensors, here no other"),
        (Normed, Tied, "no other name in state-0.safetensors, here the other names model/embed"),
        (Tied, Tied, None),
    ],
)
def test_a_version_is_of_a_network_with_the_same_ties(
    tmp_path: Path, then: type[Normed], now: type[Normed], words: str | None
) -> None:
    saving, loading = built(0), forgetful(0, now)
    saving.__class__ = then
    strategy(tmp_path / "store", saving, world(0, 1)).save(FIRST)
    version = CheckpointStore(tmp_path / "store", keep=2).newest()
    assert version is not None
    reader = strategy(tmp_path / "store", loading, world(0, 1))
    if words is None:
        reader.load(version)
        assert loading.weights["head.kernel"].tobytes() == saving.weights["head.kernel"].tobytes()
        return
    with pytest.raises(CheckpointError, match=words):
        reader.load(version)


def test_a_name_that_another_tensor_has_too_is_not_saved(tmp_path: Path) -> None:
    framework = built(0)
    first, *others = framework.handles()
    both = [dataclasses.replace(first, aliases=(others[0].name,)), *others]
    framework.handles = lambda: both  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match=f"two tensors .* are named {others[0].name}"):
        strategy(tmp_path / "store", framework, world(0, 1)).save(FIRST)


def forgetful(rank: int, kind: type[Normed] = Normed) -> Normed:
    framework = built(rank)
    framework.__class__ = kind
    for array in (*framework.weights.values(), *framework.momenta.values()):
        array.fill(-1)
    return framework


@pytest.mark.parametrize("now", [1, 2, 3])
@pytest.mark.parametrize("then", [1, 2, 3])
@pytest.mark.parametrize("kind", [Normed, Elsewhere])
def test_any_number_of_ranks_loads_it_bit_for_bit(
    tmp_path: Path, kind: type[Normed], then: int, now: int
) -> None:
    version = saved(tmp_path / "store", then)
    for rank in range(now):
        framework = forgetful(rank, kind)
        strategy(tmp_path / "store", framework, world(rank, now)).load(version)
        whole = built(rank).normalized_state()
        assert {n: a.tobytes() for n, a in framework.normalized_state().items()} == {
            name: array.tobytes() for name, array in whole.items()
        }
        before = rank if rank < then else 0
        assert framework.statistics["mean"].tolist() == [before] * 3


ROWS = 257


class Parted(Normed):
    """Each rank holds some rows of every tensor, as under FSDP2. The rows of the others are there and must stay as they are."""

    is_sharded = True
    where = ALONE

    def handles(self) -> list[TensorHandle]:
        return [self._part_of(handle) for handle in super().handles()]

    def _part_of(self, handle: TensorHandle) -> TensorHandle:
        whole = handle.read()
        part = self.own_rows(whole)
        start = (
            (part.ctypes.data - whole.ctypes.data) // whole.itemsize if part.size else whole.size
        )
        return dataclasses.replace(
            handle,
            read=lambda: part,
            write=lambda array: np.copyto(part, array),
            shard=(start, start + part.size),
        )

    def own_rows(self, whole: np.ndarray) -> np.ndarray:
        rows = -(-len(whole) // self.where.world_size)
        return whole[self.where.rank * rows : (self.where.rank + 1) * rows]


class PartedElsewhere(Parted):
    def handles(self) -> list[TensorHandle]:
        return [
            dataclasses.replace(handle, read=partial(np.copy, handle.read()), in_place=False)
            for handle in super().handles()
        ]


class Hybrid(Parted):
    """Two ranks hold each shard, as under HSDP."""

    def _part_of(self, handle: TensorHandle) -> TensorHandle:
        replica = (self.where.rank // (self.where.world_size // 2), 2)
        return dataclasses.replace(super()._part_of(handle), replica=replica)

    def own_rows(self, whole: np.ndarray) -> np.ndarray:
        parts = self.where.world_size // 2
        rows, part = -(-len(whole) // parts), self.where.rank % parts
        return whole[part * rows : (part + 1) * rows]


def of_shards(rank: int, ranks: int, kind: type[Parted] = Parted, rows: int = ROWS) -> Parted:
    framework = built(rank, classes=rows)
    framework.__class__ = kind
    assert isinstance(framework, Parted)
    framework.where = world(rank, ranks)
    return framework


def saved_shards(
    folder: Path, ranks: int, spec: PluginSpec, rows: int = ROWS, kind: type[Parted] = Parted
) -> Version:
    for rank in reversed(range(ranks)):
        framework = of_shards(rank, ranks, kind, rows=rows)
        writer = strategy(folder, framework, world(rank, ranks), spec)
        writer.ready()
        writer.save(FIRST)
        writer.close(complete=True)
    version = CheckpointStore(folder, keep=2).newest()
    assert version is not None
    return version


@pytest.mark.parametrize(("then", "now"), [(2, 4), (4, 1), (1, 2), (2, 2), (3, 2)])
@pytest.mark.parametrize("kind", [Parted, PartedElsewhere])
@pytest.mark.parametrize("spec", ["sharded", "async", "deepfreeze"])
def test_any_number_of_ranks_loads_its_shards_of_shards_bit_for_bit(
    tmp_path: Path, spec: str, kind: type[Parted], then: int, now: int
) -> None:
    version = saved_shards(tmp_path / "store", then, PluginSpec(spec))
    whole = built(0, classes=ROWS).normalized_state()
    for rank in range(now):
        framework = of_shards(rank, now, kind)
        for array in (*framework.weights.values(), *framework.momenta.values()):
            array.fill(-1)
        strategy(tmp_path / "store", framework, world(rank, now), PluginSpec(spec)).load(version)
        for name, array in framework.normalized_state().items():
            expected = np.full_like(array, -1)
            framework.own_rows(expected)[...] = framework.own_rows(whole[name])
            assert array.tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("spec", ["sharded", "async", "deepfreeze"])
def test_a_rank_writes_the_shards_that_it_holds_and_no_more(tmp_path: Path, spec: str) -> None:
    """Five rows for four ranks: two, two, one and none."""
    version = saved_shards(tmp_path / "store", 4, PluginSpec(spec), rows=5)
    for rank, rows in enumerate([(0, 2), (2, 4), (4, 5), None]):
        found = {
            p.tensor.name: (p.start, p.stop) for p in pieces_in(version.folder / shard_name(rank))
        }
        sizes = {"model/head.kernel": 16, "model/head.bias": 1}
        sizes |= {name.replace("model", "optimizer"): size for name, size in sizes.items()}
        wanted = {} if rows is None else {n: (rows[0] * s, rows[1] * s) for n, s in sizes.items()}
        assert found == wanted


@pytest.mark.parametrize("spec", ["sharded", "async", "deepfreeze"])
def test_of_a_shard_that_two_ranks_hold_each_writes_a_half(tmp_path: Path, spec: str) -> None:
    """Of three rows the ranks 0 and 2, and of two rows 1 and 3."""
    version = saved_shards(tmp_path / "store", 4, PluginSpec(spec), rows=5, kind=Hybrid)
    for rank, (start, stop) in enumerate([(0, 24), (48, 64), (24, 48), (64, 80)]):
        pieces = pieces_in(version.folder / shard_name(rank))
        found = {piece.tensor.name: (piece.start, piece.stop) for piece in pieces}
        assert found["model/head.kernel"] == found["optimizer/head.kernel"] == (start, stop)
    whole = built(0, classes=5).normalized_state()
    framework = of_shards(3, 4, Hybrid, rows=5)
    for array in (*framework.weights.values(), *framework.momenta.values()):
        array.fill(-1)
    strategy(tmp_path / "store", framework, world(3, 4), PluginSpec(spec)).load(version)
    for name, array in framework.normalized_state().items():
        assert framework.own_rows(array).tobytes() == framework.own_rows(whole[name]).tobytes()


def test_each_rank_writes_its_shard_and_its_own_state(tmp_path: Path) -> None:
    version = saved(tmp_path / "store", 2)
    names = {shard_name(0), shard_name(1), own_name(0), own_name(1)}
    assert version.files.keys() == names
    sizes = [version.files[shard_name(rank)].bytes for rank in (0, 1)]
    assert sizes[0] == sizes[1]
    assert {path.name for path in version.read_by(1)} == names - {own_name(0)}
    assert version.format == FORMAT


def test_a_rank_that_the_version_has_not_draws_on_from_its_own_seed(tmp_path: Path) -> None:
    version = saved(tmp_path / "store", 1)
    framework = forgetful(1)
    before = framework.local_state()
    strategy(tmp_path / "store", framework, world(1, 2)).load(version)
    after = framework.local_state()
    own = [name for name in before if name.startswith("random/")]
    assert own
    assert all(before[name].tobytes() == after[name].tobytes() for name in own)


def test_another_network_is_refused_with_the_tensor(tmp_path: Path) -> None:
    version = saved(tmp_path / "store", 2)
    loading = strategy(tmp_path / "store", built(0, classes=4), world(0, 2))
    with pytest.raises(CheckpointError, match=r"does not fit .*head.kernel has shape \(3, 16\)"):
        loading.load(version)


WHOLE = Layout(name="optimizer/head.kernel", shape=(3, 16), dtype=np.dtype("float32"))
PARTS = {
    "lacking": ([(0, 24)], r"is not there as a whole: no shard has its elements 24 to 48"),
    "twice": ([(0, 24), (0, 24)], r"is there more than once: .* has its elements 0 to 24"),
    "overlapping": ([(0, 24), (23, 48)], r"is there more than once: .* has its elements 23 to 48"),
    "within another": ([(0, 48), (8, 16)], r"is there more than once"),
    "with a hole": (
        [(0, 20), (24, 48)],
        r"is not there as a whole: no shard has its elements 20 to 24",
    ),
    "without its beginning": ([(1, 48)], r"no shard has its elements 0 to 1"),
    "in none": ([], r"no shard has its elements 0 to 48"),
    "as many as whole": ([(0, 24), (8, 32)], r"is there more than once"),
}
"""Elements of a tensor that each of several shards has, and what is said of them."""


@pytest.mark.parametrize("kind", [Normed, Elsewhere])
@pytest.mark.parametrize("parts", PARTS)
def test_a_tensor_of_which_shards_lack_or_repeat_an_element_is_refused_and_nothing_is_loaded(
    tmp_path: Path, parts: str, kind: type[Normed]
) -> None:
    """Not even where the shards have as many bytes together as the tensor."""
    version = saved(tmp_path / "store", 1)
    held, words = PARTS[parts]
    others = [
        (handle, piece)
        for handle, piece in own_shard(built(0).handles(), 0, 1)
        if handle.name != WHOLE.name
    ]
    files = {
        own_name(0): version.files[own_name(0)],
        **{f"state-{n}": File(name=f"state-{n}", kind="state", rank=n, bytes=0) for n in range(len(held) + 1)},
    }  # fmt: skip
    folder = version.folder
    write_pieces(
        folder / "state-0", [p for _, p in others], (bytes_of(t.read())[p.bytes] for t, p in others)
    )
    for number, (start, stop) in enumerate(held, start=1):
        piece = Piece(tensor=WHOLE, start=start, stop=stop)
        write_pieces(folder / f"state-{number}", [piece], [np.ones(piece.nbytes, np.uint8)])
    framework = forgetful(0, kind)
    loading = strategy(tmp_path / "store", framework, world(0, 1))
    with pytest.raises(CheckpointError, match=words):
        loading.load(dataclasses.replace(version, files=files))
    assert all((array == -1).all() for array in framework.normalized_state().values())


def test_a_version_that_lacks_a_shard_is_refused(tmp_path: Path) -> None:
    version = saved(tmp_path / "store", 2)
    files = {name: file for name, file in version.files.items() if name != shard_name(1)}
    half = dataclasses.replace(version, files=files)
    loading = strategy(tmp_path / "store", forgetful(0), world(0, 2))
    with pytest.raises(CheckpointError, match="is not there as a whole: no shard has its elements"):
        loading.load(half)


def test_an_own_state_that_lacks_a_part_is_refused_with_its_file(tmp_path: Path) -> None:
    version = saved(tmp_path / "store", 1)
    path = version.folder / own_name(0)
    own = {
        name: array for name, array in load_own(version.folder, 0).items() if "gauss" not in name
    }
    path.unlink()
    save_own(version.folder, 0, own)
    loading = strategy(tmp_path / "store", forgetful(0), world(0, 1))
    with pytest.raises(CheckpointError, match=rf"{path}: .*random/numpy/gauss"):
        loading.load(version)


def test_two_tensors_of_one_name_are_not_saved(tmp_path: Path) -> None:
    framework = built(0)
    twice = framework.handles()
    framework.handles = lambda: [*twice, twice[1]]  # type: ignore[method-assign]
    saving = strategy(tmp_path / "store", framework, world(0, 1))
    with pytest.raises(
        CheckpointError, match=r"two tensors of the state are named model/head.bias"
    ):
        saving.save(FIRST)
