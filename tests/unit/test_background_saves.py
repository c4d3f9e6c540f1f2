"""The strategies `async` and `deepfreeze`: a copy, written by a thread while training goes on."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_framework import ALONE, NumpyFramework
from stored_versions import staged
from strategies import timed
from test_native import FIRST, RANK_0, RANK_1, SECOND, THIRD, built, newest, same

from ckptbench.checkpointing import manager as timing
from ckptbench.checkpointing import staging_buffer
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.state_files import FORMAT, bytes_of, own_name, shard_name
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.errors import CheckpointError
from ckptbench.common.small_floats import SMALL_FLOATS
from ckptbench.frameworks.contract import Arrays, TensorHandle
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import STRATEGIES, SYNCED
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position
from ckptbench.run.trace import read_trace

CAPTURES_BESIDE = pytest.mark.parametrize("way", ["numpy"], indirect=True)
ENGINES = pytest.mark.parametrize("engine", ["async", "deepfreeze"])
PATIENCE_S = 300


@pytest.fixture(autouse=True, params=["native", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the state is copied."""
    assert staging_buffer.has_c_copy(), "the native copy is not compiled: run `make environment`"
    monkeypatch.setattr(staging_buffer, "has_c_copy", lambda: request.param == "native")
    return str(request.param)


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the memories that a test makes for saves, in bytes."""
    make, found = staging_buffer.kept_memory, []

    def kept_memory(nbytes: int) -> NDArray[np.uint8]:
        found.append(nbytes)
        return make(nbytes)

    monkeypatch.setattr(staging_buffer, "kept_memory", kept_memory)
    return found


def strategy(
    engine: str,
    folder: Path,
    framework: NumpyFramework,
    world: RankContext = ALONE,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> CheckpointManager:
    store = CheckpointStore(folder, keep=2)
    opened = timed(
        store, framework, world, format=FORMAT, spec=PluginSpec(engine), on_stage=on_stage
    )
    opened.ready()
    return opened


def update(framework: NumpyFramework, saving: CheckpointManager, value: float) -> None:
    """Change all parameters and slots, as a step does."""
    if saving.hook is not None:
        saving.hook()
    for array in (*framework.weights.values(), *framework.momenta.values()):
        array[...] = value


def saved_once(engine: str, folder: Path, framework: NumpyFramework) -> CheckpointManager:
    saving = strategy(engine, folder, framework)
    saving.save(FIRST)
    saving.settle()
    return saving


def loaded(folder: Path) -> Arrays:
    """What a framework with other weights holds when it has loaded the newest version."""
    store, other = CheckpointStore(folder, keep=2), built(seed=3)
    timed(store, other, format=FORMAT, spec=PluginSpec("deepfreeze")).load(newest(folder))
    return other.normalized_state()


@ENGINES
def test_the_version_is_the_state_of_its_step_though_training_went_on(
    tmp_path: Path, engine: str
) -> None:
    framework, then = built(), built()
    saving = strategy(engine, tmp_path / "store", framework)
    saving.save(FIRST)
    update(framework, saving, 1)
    saving.close()
    assert newest(tmp_path / "store").files.keys() == {shard_name(0), own_name(0)}
    assert same(loaded(tmp_path / "store"), then.normalized_state())


@ENGINES
@pytest.mark.parametrize("way", ["native"], indirect=True)
def test_a_native_copy_is_made_by_the_thread_that_trains(tmp_path: Path, engine: str) -> None:
    framework = built()
    saving = strategy(engine, tmp_path / "store", framework)
    threads, buffer = [], saving._strategy._buffer  # type: ignore[attr-defined]
    capture = buffer.capture

    def captured() -> None:
        threads.append(threading.current_thread())
        capture()

    buffer.capture = captured
    saving.save(FIRST)
    saving.close()
    assert threads == [threading.main_thread()]


@CAPTURES_BESIDE
def test_the_update_waits_for_the_capture_and_the_wait_is_stall(tmp_path: Path) -> None:
    """The capture goes on only when the update waits for it."""
    waiting, framework, then = threading.Event(), built(), built()
    saving = strategy("deepfreeze", tmp_path / "store", framework)
    buffer = saving._strategy._buffer  # type: ignore[attr-defined]
    capture = buffer.capture

    def captured_late() -> None:
        assert waiting.wait(PATIENCE_S)
        capture()

    buffer.capture = captured_late
    saving.save(FIRST)
    threading.Timer(0.05, waiting.set).start()
    update(framework, saving, 1)
    assert waiting.is_set()
    saving.close()
    (checkpoint,) = read_trace(tmp_path / "store-0.jsonl").checkpoints.values()
    assert [hold.why for hold in checkpoint.holds] == ["update", "end"]
    assert checkpoint.captured is not None
    assert same(loaded(tmp_path / "store"), then.normalized_state())


@CAPTURES_BESIDE
def test_a_capture_that_fails_is_the_first_cause(tmp_path: Path) -> None:
    framework = built()
    saving = saved_once("deepfreeze", tmp_path / "store", framework)

    def lost(part: object) -> None:
        raise MemoryError("the device is gone")

    buffer = saving._strategy._buffer  # type: ignore[attr-defined]
    buffer._training_state.await_copies = lambda: lost(None)
    saving.save(SECOND)
    with pytest.raises(CheckpointError, match=r"step 2 cannot be written .*the device is gone"):
        saving.settle()
    assert newest(tmp_path / "store").position == FIRST


@CAPTURES_BESIDE
def test_a_file_is_never_that_of_the_capture_before(tmp_path: Path) -> None:
    """The thread that writes is asked for the second file long before the second capture begins."""
    framework, then = built(), built()
    saving = saved_once("deepfreeze", tmp_path / "store", framework)
    update(framework, saving, 1)
    update(then, saving, 1)
    buffer = saving._strategy._buffer  # type: ignore[attr-defined]
    capture = buffer.capture

    def captured_late() -> None:
        time.sleep(0.3)  # a file that does not wait is written by now
        capture()

    buffer.capture = captured_late
    saving.save(SECOND)
    saving.close()
    assert same(loaded(tmp_path / "store"), then.normalized_state())


class Bound(NumpyFramework):
    """Its tensors are of the arrays that were there when `handles` was called, as those of PyTorch are."""

    def handles(self) -> list[TensorHandle]:
        return [
            dataclasses.replace(handle, read=partial(np.asarray, handle.read()))
            for handle in super().handles()
        ]


def bound() -> NumpyFramework:
    return built(Bound)


def kept() -> NumpyFramework:
    """As Chainer, whose parameters can be given another array: the tensors stay, and what they read is another one."""
    framework = built()
    as_built = framework.handles()
    framework.handles = lambda: as_built  # type: ignore[method-assign]
    return framework


@ENGINES
@pytest.mark.parametrize("make", [bound, kept])
@pytest.mark.parametrize("kind", ["weights", "momenta"])
def test_an_array_that_was_replaced_is_saved_as_it_is_now(
    tmp_path: Path, engine: str, make: Callable[[], NumpyFramework], kind: str
) -> None:
    """As the load of an optimizer replaces its slots, or `parameter.data = ...` the memory of a parameter."""
    framework = make()
    saving = saved_once(engine, tmp_path / "store", framework)
    arrays = getattr(framework, kind)
    arrays["head.kernel"] = arrays["head.kernel"] + 1
    then = framework.normalized_state()
    saving.save(SECOND)
    update(framework, saving, 9)
    saving.close()
    assert same(loaded(tmp_path / "store"), then)


class Moved(Bound):
    """Its tensors may come to lie in memory in another order than that of C."""

    in_place = True

    def handles(self) -> list[TensorHandle]:
        return [dataclasses.replace(each, in_place=self.in_place) for each in super().handles()]


@ENGINES
def test_a_state_that_cannot_be_copied_natively_any_more_is_copied_by_numpy(
    tmp_path: Path, engine: str
) -> None:
    framework = built(Moved)
    saving = saved_once(engine, tmp_path / "store", framework)
    update(framework, saving, 1)
    framework.in_place = False  # type: ignore[attr-defined]
    saving.save(SECOND)
    saving.close()
    assert newest(tmp_path / "store").position == SECOND
    assert same(loaded(tmp_path / "store"), framework.normalized_state())


class Counting(Bound):
    """It has a number that is no array, as Chainer's optimizer counts updates."""

    def handles(self) -> list[TensorHandle]:
        count = TensorHandle(
            name="optimizer/steps",
            shape=(),
            dtype=np.dtype(np.int64),
            read=lambda: np.asarray(7),
            write=lambda array: None,
        )
        return [*super().handles(), count]


def test_a_number_is_copied_natively_with_the_arrays(tmp_path: Path, way: str) -> None:
    framework = built(Counting)
    buffer = staging_buffer.StagingBuffer(framework, rank=0, world_size=1)
    assert buffer.copies_in_place == (way == "native")
    buffer.begin(framework.local_state())
    buffer.capture()
    _, shard = buffer.write(tmp_path, tmp_path / "none")
    assert (tmp_path / shard.name).read_bytes()[-8:] == (7).to_bytes(8, "little"), "the last tensor"


def test_a_copy_in_the_background_looks_up_no_tensor(way: str) -> None:
    """A forward pass may have put others in their places by then, as FSDP2 does."""
    framework = bound()
    buffer = staging_buffer.StagingBuffer(framework, rank=0, world_size=1)
    buffer.begin(framework.local_state())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            framework, "handles", lambda: pytest.fail(f"looked up beside training ({way})")
        )
        buffer.capture()


@ENGINES
def test_a_thread_that_cannot_start_is_an_error_before_training(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a limit on threads. Else the first save would wait for ever."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(timing, "threading", SimpleNamespace(Thread=Refused))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        strategy(engine, tmp_path / "store", built())


@ENGINES
def test_all_saves_end_in_one_thread_that_the_end_of_training_ends(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []

    class Counted(threading.Thread):
        def start(self) -> None:
            begun.append(self)
            super().start()

    monkeypatch.setattr(timing, "threading", SimpleNamespace(Thread=Counted))
    saving = strategy(engine, tmp_path / "store", built())
    for position in (FIRST, SECOND, THIRD):
        saving.save(position)
    saving.close()
    (thread,) = begun
    assert not thread.is_alive()
    assert CheckpointStore(tmp_path / "store", keep=2).steps() == [3, 2]


@ENGINES
def test_one_that_is_left_without_an_end_lets_go_of_thread_and_memory(
    tmp_path: Path, engine: str
) -> None:
    """As recoveries leave it, after a loss in which its last save has failed."""
    saving = strategy(engine, tmp_path / "store", built())
    saving.save(FIRST)
    saving.settle()
    thread, buffer = saving._worker, weakref.ref(saving._strategy._buffer)  # type: ignore[attr-defined]
    del saving
    gc.collect()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert buffer() is None


def tie(framework: NumpyFramework) -> None:
    """Give the first tensor another name."""
    first, *others = framework.handles()
    tied = [dataclasses.replace(first, aliases=("twin",)), *others]
    framework.handles = lambda: tied  # type: ignore[method-assign]


CHANGES: dict[str, tuple[Callable[[NumpyFramework], object], str]] = {
    "made": (
        lambda f: f.momenta.update(late=np.ones(3, np.float32)),
        r"optimizer/late was made after the framework was built",
    ),
    "gone": (lambda f: f.momenta.pop("head.bias"), r"optimizer/head.bias is no longer there"),
    "longer": (
        lambda f: f.weights.update({"head.bias": np.ones(4, np.float32)}),
        r"model/head.bias had shape \(3,\) and type float32, and now has \(4,\) and float32",
    ),
    "shorter": (
        lambda f: f.weights.update({"head.bias": np.ones(1, np.float32)}),
        r"model/head.bias had shape \(3,\) and type float32, and now has \(1,\) and float32",
    ),
    "of another type": (
        lambda f: f.weights.update({"head.bias": np.ones(3, np.int32)}),
        r"model/head.bias had shape \(3,\) and type float32, and now has \(3,\) and int32",
    ),
    "tied": (
        tie,
        r"model/head.kernel has come to share its memory with another tensor",
    ),
    "of a type that NumPy lacks": (
        lambda f: f.weights.update({"head.bias": np.ones(3, SMALL_FLOATS["bfloat16"])}),
        r"model/head.bias had shape \(3,\) and type float32, and now has \(3,\) and bfloat16",
    ),
}
"""What no longer fits the memory that was made for the saves, and the words of its refusal."""


@ENGINES
@pytest.mark.parametrize("change", CHANGES)
def test_a_state_with_other_tensors_is_refused_and_never_committed(
    tmp_path: Path, engine: str, change: str
) -> None:
    framework = bound()
    saving = saved_once(engine, tmp_path / "store", framework)
    act, words = CHANGES[change]
    act(framework)
    with pytest.raises(
        CheckpointError, match=rf"checkpoint of step 2 cannot be written .*{words}.* native"
    ):
        save_and_settle(saving)
    saving._strategy.close()
    assert newest(tmp_path / "store").position == FIRST


def save_and_settle(saving: CheckpointManager) -> None:
    saving.save(SECOND)
    if saving.hook is not None:
        saving.hook()  # the step ends as ever: the error is that of the save
    saving.settle()


class Device:
    """It does what it is given in two queues, each in its order, as late as it may: when the host waits for the copies.

    Where either queue could go on, it is the eager one that does.
    """

    def __init__(self, eager: str) -> None:
        self._eager = eager
        self._queues: dict[str, list[Callable[[], object]]] = {"updates": [], "copies": []}
        self._given = dict.fromkeys(self._queues, 0)
        self._done = dict.fromkeys(self._queues, 0)

    def give(self, queue: str, act: Callable[[], object]) -> None:
        self._given[queue] += 1
        self._queues[queue].append(act)

    def let_wait(self, queue: str, other: str) -> None:
        """What `queue` is given from now on comes after what the other has been given."""
        until = self._given[other]
        self.give(queue, lambda: self._done[other] >= until)

    def run(self) -> None:
        """All that was given to it."""
        while any(self._queues.values()):
            assert any(self._step(queue) for queue in self._in_order()), "each waits for the other"

    def _in_order(self) -> list[str]:
        return sorted(self._queues, key=lambda queue: queue != self._eager)

    def _step(self, queue: str) -> bool:
        """Go on with the queue as far as it can. Returns whether it could."""
        before = self._done[queue]
        while self._queues[queue] and self._queues[queue][0]() is not False:
            self._queues[queue].pop(0)
            self._done[queue] += 1
        return self._done[queue] > before


class OnDevice(NumpyFramework):
    """Its tensors lie on a device."""

    device_queues: Device
    may_wait: threading.Event
    kept: NDArray[np.uint8] | None = None

    def handles(self) -> list[TensorHandle]:
        def on_device(handle: TensorHandle) -> TensorHandle:
            def begin_copy(target: NDArray[np.uint8], part: slice) -> None:
                assert self.kept is not None
                assert np.shares_memory(target, self.kept)
                self.device_queues.give(
                    "copies", lambda: np.copyto(target, bytes_of(handle.read())[part])
                )

            return dataclasses.replace(handle, in_place=False, begin_copy=begin_copy)

        return [on_device(handle) for handle in super().handles()]

    def update(self, value: float) -> None:
        """Change all parameters and slots when the device comes to it."""
        for array in (*self.weights.values(), *self.momenta.values()):
            self.device_queues.give("updates", partial(array.fill, value))

    def keep_memory(self, memory: NDArray[np.uint8]) -> None:
        self.kept = memory

    def release_memory(self, memory: NDArray[np.uint8]) -> None:
        assert memory is self.kept
        self.kept = None

    def begin_copies(self) -> None:
        self.device_queues.let_wait("copies", "updates")

    def hold_updates(self) -> None:
        self.device_queues.let_wait("updates", "copies")

    def await_copies(self) -> None:
        assert self.may_wait.wait(30), "the thread that trains waits for the copies"
        self.device_queues.run()


def values(arrays: Arrays) -> set[float]:
    return {value for array in arrays.values() for value in array.flat}


@ENGINES
@pytest.mark.parametrize("eager", ["updates", "copies"])
def test_a_copy_from_a_device_comes_between_two_updates_in_its_queues(
    tmp_path: Path, engine: str, eager: str
) -> None:
    """With `deepfreeze` the thread that trains gives the next update before any copy is made."""
    framework = cast("OnDevice", built(OnDevice))
    framework.device_queues, framework.may_wait = Device(eager), threading.Event()
    saving = strategy(engine, tmp_path / "store", framework)
    framework.update(1)
    if engine == "async":
        framework.may_wait.set()
    saving.save(FIRST)
    if saving.hook is not None:
        saving.hook()
    framework.update(2)
    framework.may_wait.set()
    saving.close()
    assert framework.kept is None, "the memory is not released"
    assert values(loaded(tmp_path / "store")) == {1}
    framework.device_queues.run()
    assert values(framework.normalized_state()) == {2}


@ENGINES
def test_memory_is_kept_for_all_saves(tmp_path: Path, memories: list[int], engine: str) -> None:
    framework = built()
    saving = strategy(engine, tmp_path / "store", framework)
    for step in range(1, 7):
        update(framework, saving, step)
        saving.save(Position(step=step, epoch=0, step_in_epoch=step))
    saving.close()
    assert newest(tmp_path / "store").position.step == 6
    assert same(loaded(tmp_path / "store"), framework.normalized_state())
    state = sum(handle.nbytes for handle in framework.handles())
    (held,) = memories
    assert state < held <= state + 16384  # headers, and the rank's own state


@ENGINES
def test_the_file_of_a_removed_version_is_written_over(tmp_path: Path, engine: str) -> None:
    framework, store = built(), CheckpointStore(tmp_path / "store", keep=2)
    saving = strategy(engine, store.folder, framework)
    inodes = []
    for step in range(1, 7):
        update(framework, saving, step)
        saving.save(Position(step=step, epoch=0, step_in_epoch=step))
        saving.settle()
        inodes.append((newest(store.folder).folder / shard_name(0)).stat().st_ino)
    saving.close()
    assert inodes[3:] == inodes[:3], "three files take turns"
    assert len(set(inodes)) == 3


def save_by_two(engine: str, folder: Path) -> None:
    ranks = [strategy(engine, folder, built(), world) for world in (RANK_0, RANK_1)]
    for rank in ranks:
        rank.save(FIRST)
    for rank in ranks:
        rank.close()


def test_shards_of_two_ranks_are_the_state(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    save_by_two("deepfreeze", folder)
    assert newest(folder).files.keys() == {shard_name(0), own_name(0), shard_name(1), own_name(1)}
    assert same(loaded(folder), built().normalized_state())


def test_a_rank_that_writes_no_state_needs_no_memory(tmp_path: Path, memories: list[int]) -> None:
    save_by_two("async", tmp_path / "store")
    assert len(memories) == 1
    files = newest(tmp_path / "store").files
    assert files.keys() == {shard_name(0), own_name(0), own_name(1)}


@ENGINES
def test_an_error_of_the_disk_names_the_file(tmp_path: Path, engine: str) -> None:
    saving = strategy(engine, tmp_path / "store", built())
    staging = staged(CheckpointStore(tmp_path / "store", keep=2), FIRST.step)
    (staging / shard_name(0)).mkdir()
    saving.save(FIRST)
    with pytest.raises(
        CheckpointError, match=rf"{shard_name(0)} cannot be written in the background: FileExists"
    ):
        saving.close()


def save_and_die(engine: str, folder: Path, at: str) -> None:
    second = threading.Event()

    def die(stage: str) -> None:
        if stage == at and second.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    saving = strategy(engine, folder, built(), on_stage=die)
    saving.save(FIRST)
    saving.settle()
    second.set()
    saving.save(SECOND)
    saving.settle()


@pytest.mark.parametrize(
    ("engine", "stage"),
    [
        (name, each)
        for name in ("async", "deepfreeze")
        for each in (*STRATEGIES[name].stages, SYNCED)
    ],
)
def test_a_kill_at_any_stage_leaves_the_version_before_it(
    tmp_path: Path, engine: str, stage: str
) -> None:
    folder = tmp_path / "store"
    rank = multiprocessing.get_context("fork").Process(
        target=save_and_die, args=(engine, folder, stage)
    )
    rank.start()
    rank.join(PATIENCE_S)
    assert rank.exitcode == -signal.SIGKILL
    assert newest(folder).position == FIRST
    assert same(loaded(folder), built().normalized_state())
