"""States whose arrays lie in memory in another order than that of C: files hold that of C, and no array is copied whole for it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework
from strategies import timed
from test_native import FIRST, SECOND, newest, same
from test_sharded import world

from ckptbench.checkpointing import staging_buffer
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.state_files import FORMAT, own_shard
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.elements import copy_elements, put_elements
from ckptbench.frameworks.contract import TensorHandle
from ckptbench.matrix.plugin_spec import PluginSpec

MB = 1 << 20
SHAPE = (64, 3, 3, 3500)
"""Of an array of 8 MB."""
ENGINES = pytest.mark.parametrize("engine", ["sharded", "async", "deepfreeze"])


@pytest.fixture(autouse=True, params=["native", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the state is copied."""
    assert staging_buffer.has_c_copy(), "the native copy is not compiled: run `make environment`"
    monkeypatch.setattr(staging_buffer, "has_c_copy", lambda: request.param == "native")
    return str(request.param)


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def channels_last(array: np.ndarray) -> np.ndarray:
    """The same values, with the second axis last in memory."""
    order = (0, *range(2, array.ndim), 1)
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


class ChannelsLast(NumpyFramework):
    """Large arrays with channels last, a small one whose rows lie apart, and one in the order of C."""

    def build(self, *args: object, seed: int = 1) -> None:
        self.weights = {
            "conv": channels_last(drawn(SHAPE, seed)),
            "columns": drawn((11, 7), seed)[::2, ::-3],
            "head": drawn((5,), seed),
        }
        self.momenta = {"conv": channels_last(drawn(SHAPE, seed + 1))}

    def handles(self) -> list[TensorHandle]:
        found = super().handles()
        assert sum(not each.read().flags.c_contiguous for each in found) == 3
        return found


def built(seed: int = 1) -> ChannelsLast:
    framework = ChannelsLast.join(ALONE, seed=seed, deterministic=True)
    framework.build(seed=seed)
    return framework


def strategy(engine: str, folder: Path, framework: NumpyFramework) -> CheckpointManager:
    store = CheckpointStore(folder, keep=2)
    opened = timed(store, framework, format=FORMAT, spec=PluginSpec(engine))
    opened.ready()
    return opened


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak_of(act: object) -> int:
    """Bytes that Python and NumPy have had at once beyond those before."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    act()  # type: ignore[operator]
    return tracemalloc.get_traced_memory()[1] - before


@ENGINES
@pytest.mark.usefixtures("traced")
def test_a_save_and_a_load_need_no_second_copy_of_an_array(tmp_path: Path, engine: str) -> None:
    framework, then, other = built(), built(), built(seed=3)
    saving = strategy(engine, tmp_path / "store", framework)

    def save_twice() -> None:
        for position in (FIRST, SECOND):
            saving.save(position)
            if saving.hook is not None:
                saving.hook()
            saving.settle()

    assert peak_of(save_twice) < 4 * MB
    saving.close()
    loading = strategy("sharded", tmp_path / "store", other)
    version = newest(tmp_path / "store")
    # The reader keeps one buffer for all pieces, of the size of the largest.
    assert peak_of(lambda: loading.load(version)) < 8.5 * MB
    assert same(other.normalized_state(), then.normalized_state())
    assert not other.weights["conv"].flags.c_contiguous


@ENGINES
def test_what_was_written_in_one_order_is_loaded_in_another(tmp_path: Path, engine: str) -> None:
    framework, other = built(), built(seed=3)
    saving = strategy(engine, tmp_path / "store", framework)
    saving.save(FIRST)
    saving.close()
    other.weights["conv"] = np.ascontiguousarray(other.weights["conv"])
    other.handles = lambda: NumpyFramework.handles(other)  # type: ignore[method-assign]
    strategy("sharded", tmp_path / "store", other).load(newest(tmp_path / "store"))
    assert same(other.normalized_state(), framework.normalized_state())


@pytest.mark.usefixtures("traced")
def test_shards_of_three_ranks_that_cut_it_are_the_state(tmp_path: Path) -> None:
    framework, other = built(), built(seed=3)
    for rank in (2, 1, 0):
        where, trace = world(rank, 3), tmp_path / f"trace-{rank}.jsonl"
        store = CheckpointStore(tmp_path / "store", keep=2)
        timed(store, framework, where, format=FORMAT, spec=PluginSpec("sharded"), trace=trace).save(
            FIRST
        )
    assert not all(piece.is_whole for _, piece in own_shard(framework.handles(), 1, 3))
    loading, version = strategy("sharded", tmp_path / "store", other), newest(tmp_path / "store")
    # The reader keeps one buffer for all pieces of a file.
    assert peak_of(lambda: loading.load(version)) < 8.5 * MB
    assert same(other.normalized_state(), framework.normalized_state())


@pytest.mark.parametrize("shape", [(), (1,), (6,), (0, 3), (2, 3), (3, 1, 4), (2, 3, 4, 5)])
def test_any_elements_are_those_of_the_order_of_c(shape: tuple[int, ...]) -> None:
    array = drawn(shape[::-1], 1).T
    flat = array.reshape(-1)
    for start in range(array.size + 1):
        for stop in range(start, array.size + 1):
            part = slice(start * 4, stop * 4)
            # From the second byte on: no number is aligned in it.
            target = np.zeros(part.stop - part.start + 1, np.uint8)[1:]
            copy_elements(array, part, target)
            assert target.tobytes() == flat[start:stop].tobytes()
            changed = np.asfortranarray(np.zeros_like(array))
            put_elements(changed, part, target)
            expected = np.zeros(array.size, np.float32)
            expected[start:stop] = flat[start:stop]
            assert changed.reshape(-1).tobytes() == expected.tobytes()


def test_a_block_is_a_view_where_the_memory_has_the_order_of_the_file() -> None:
    array = drawn((300, 1000), 1)
    handle = TensorHandle(
        name="w", shape=array.shape, dtype=array.dtype, read=lambda: array, write=print
    )
    (block,) = handle.blocks(slice(8, array.nbytes))
    assert np.shares_memory(block, array)
    turned = TensorHandle(
        name="w", shape=array.shape, dtype=array.dtype, read=lambda: array.T, write=print
    )
    blocks = list(turned.blocks(slice(8, array.nbytes)))
    assert max(block.nbytes for block in blocks) <= MB
    assert b"".join(block.tobytes() for block in blocks) == array.T.tobytes()[8:]
