"""Every strategy is measured by the same code: a save that goes on behind training, its waits and its failures."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from numpy_framework import ALONE, NumpyFramework, linear
from stored_versions import Busy, staged
from strategies import timed

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, StrategyContext
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.strategies.native import Native
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError, LaunchError
from ckptbench.frameworks.contract import Sgd, TrainSpec
from ckptbench.matrix.levels import SHARED
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NATIVE, STRATEGIES, StrategyEntry
from ckptbench.run.events import File, Retained, SaveFailed
from ckptbench.run.position import Position
from ckptbench.run.trace import read_trace, whole_events
from ckptbench.training.digest import digests

BEHIND = PluginSpec("behind")
RANK_0, RANK_1 = (dataclasses.replace(ALONE, rank=rank, world_size=2) for rank in (0, 1))
FIRST, SECOND, THIRD, FOURTH = (
    Position(step=step, epoch=0, step_in_epoch=step) for step in range(1, 5)
)


class Behind(Strategy):
    """Captures and writes in a thread, each when the test lets it."""

    capture, write = threading.Event(), threading.Event()
    failure: Exception | None = None

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._native = Native(context)
        self._captured: Future[None] = Future()

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        captured: Future[None] = Future()
        written: Future[tuple[File, ...]] = Future()
        self._captured = captured

        def go() -> None:
            self.capture.wait(300)
            shard = self._native.save(position, slots)
            captured.set_result(None)
            self.write.wait(300)
            if self.failure is not None:
                written.set_exception(self.failure)
            else:
                written.set_result(shard.written[SHARED].result())

        threading.Thread(target=go, daemon=True).start()
        return Shard(captured, {SHARED: written})

    def before_update(self) -> None:
        self._captured.result()

    def load(self, version: Version, folder: Path) -> None:
        self._native.load(version, folder)

    def close(self) -> None:
        """Its thread ends by itself."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entry = StrategyEntry(location="test_timed:Behind", stages=("begun", "written"), blocking=False)
    monkeypatch.setitem(STRATEGIES, "behind", entry)
    Behind.capture.clear(), Behind.write.clear()
    Behind.failure = None
    yield
    Behind.capture.set(), Behind.write.set()


def built(seed: int = 1) -> NumpyFramework:
    framework = NumpyFramework.join(ALONE, seed=seed, deterministic=True)
    network = linear((4, 4, 1), 3)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(TrainSpec(network, dict(network.initial_weights(seed)), sgd))
    return framework


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=2)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace-0.jsonl"


def opened(
    store: CheckpointStore, trace: Path, framework: NumpyFramework | None = None
) -> CheckpointManager:
    return timed(store, framework or built(), spec=BEHIND, trace=trace)


def let_go_after(seconds: float, *events: threading.Event) -> None:
    for event in events:
        threading.Timer(seconds, event.set).start()


def test_a_blocking_strategy_has_no_hook_and_holds_nothing(
    store: CheckpointStore, trace: Path
) -> None:
    native = timed(store, built(), trace=trace)
    assert native.hook is None
    native.save(FIRST), native.save(SECOND), native.close()
    checkpoints = read_trace(trace).checkpoints
    assert list(checkpoints) == [1, 2]
    assert all(checkpoint.holds == [] for checkpoint in checkpoints.values())


def test_a_save_behind_training_is_durable_after_it_has_returned(
    store: CheckpointStore, trace: Path
) -> None:
    behind, framework = opened(store, trace, saved := built()), built(seed=2)
    behind.save(FIRST)
    assert store.newest() is None
    let_go_after(0.05, Behind.capture, Behind.write)
    behind.close()
    version = store.newest()
    assert version is not None
    opened(store, trace.with_name("other.jsonl"), framework).load(version)
    assert digests(framework.normalized_state()) == digests(saved.normalized_state())

    checkpoint = read_trace(trace).checkpoints[1]
    save, captured = checkpoint.save, checkpoint.captured
    written, durable = checkpoint.written[SHARED], checkpoint.durable[SHARED]
    assert save is not None
    assert captured is not None
    assert save.end_ns < captured.at_ns <= written.at_ns
    assert written.at_ns <= durable.synced_ns <= durable.checked_ns <= durable.committed_ns
    assert [hold.why for hold in checkpoint.holds] == ["end"]


def test_an_update_waits_for_the_capture_once_and_the_wait_is_a_hold(
    store: CheckpointStore, trace: Path
) -> None:
    behind = opened(store, trace)
    hook = behind.hook
    assert hook is not None
    hook()  # nothing is in pending
    behind.save(FIRST)
    let_go_after(0.05, Behind.capture)
    hook(), hook()
    Behind.write.set()
    behind.close()
    holds = read_trace(trace).checkpoints[1].holds
    update, *rest = holds
    assert update.why == "update"
    assert update.end_ns - update.start_ns > 2e7
    assert [hold.why for hold in rest if hold.why == "update"] == []


def test_a_save_waits_for_the_one_before_and_drops_none(
    store: CheckpointStore, trace: Path
) -> None:
    behind = opened(store, trace)
    behind.save(FIRST)
    let_go_after(0.05, Behind.capture, Behind.write)
    behind.save(SECOND)
    behind.close()
    newest = store.newest()
    assert newest is not None
    assert newest.position == SECOND
    checkpoints = read_trace(trace).checkpoints
    assert {step for step, each in checkpoints.items() if SHARED in each.durable} == {1, 2}
    assert [hold.why for hold in checkpoints[1].holds] == ["save"]
    first, second = checkpoints[1].durable[SHARED], checkpoints[2].save
    assert second is not None
    assert first.committed_ns <= second.start_ns


@pytest.mark.parametrize("then", ["save", "close"])
def test_an_error_behind_training_is_raised_by_what_comes_next(
    store: CheckpointStore, trace: Path, then: str
) -> None:
    Behind.failure = OSError("the disk is full")
    behind = opened(store, trace)
    behind.save(FIRST)
    Behind.capture.set(), Behind.write.set()
    with pytest.raises(CheckpointError, match=r"step 1 cannot be written .*the disk is full"):
        behind.save(SECOND) if then == "save" else behind.close()
    (failed,) = (event for event in whole_events(trace) if isinstance(event, SaveFailed))
    assert (failed.step, failed.error) == (1, "OSError: the disk is full")
    assert store.newest() is None


def test_ranks_meet_behind_training_without_a_collective(
    store: CheckpointStore, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = built()
    monkeypatch.setattr(framework, "barrier", lambda: pytest.fail("a collective"))
    Behind.capture.set(), Behind.write.set()
    ranks = [
        timed(store, framework, place, spec=BEHIND, trace=trace.with_name(f"{place.rank}"))
        for place in (RANK_0, RANK_1)
    ]
    for rank in ranks:
        rank.save(FIRST)
    for rank in ranks:
        rank.close()
    version = store.newest()
    assert version is not None
    assert set(version.files) == {"model.npz", "rank-0.safetensors", "rank-1.safetensors"}
    assert version.files["rank-1.safetensors"].rank == 1


def test_a_file_that_no_shard_names_is_never_committed(store: CheckpointStore, trace: Path) -> None:
    (staged(store, 1) / "unnamed").write_bytes(b"1")
    with pytest.raises(CheckpointError, match="unnamed belongs to no rank's shard"):
        timed(store, built(), trace=trace).save(FIRST)
    assert store.newest() is None


# The removal of old versions


class HeldStore(CheckpointStore):
    """Removes nothing until the test lets it."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        super().__init__(folder, keep=keep)
        self.go = threading.Event()

    def retain(self, *, recycle: bool = False) -> None:
        assert self.go.wait(60)
        super().retain(recycle=recycle)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldStore]:
    store = HeldStore(tmp_path / "checkpoints", keep=2)
    yield store
    store.go.set()


def release_when_awaited(monkeypatch: pytest.MonkeyPatch, store: HeldStore) -> None:
    """Let the removal go only when the next save, or the end, has begun to wait for it."""
    awaits = CheckpointManager._await_end

    def await_it(self: CheckpointManager, pending: Any) -> None:
        store.go.set()
        awaits(self, pending)

    monkeypatch.setattr(CheckpointManager, "_await_end", await_it)


def steps(store: CheckpointStore) -> list[int]:
    """Of the committed versions."""
    return sorted(int(path.name[8:]) for path in store.folder.iterdir() if path.name[8:].isdigit())


@pytest.mark.parametrize("spec", [NATIVE, BEHIND])
def test_old_versions_are_removed_behind_training_and_the_next_save_waits_for_it(
    held: HeldStore, trace: Path, monkeypatch: pytest.MonkeyPatch, spec: PluginSpec
) -> None:
    Behind.capture.set(), Behind.write.set()
    strategy = timed(held, built(), spec=spec, trace=trace)
    for position in (FIRST, SECOND, THIRD):
        strategy.save(position)
    pending = strategy._pending
    assert pending is not None
    pending.finished.result(60)
    assert steps(held) == [1, 2, 3]
    release_when_awaited(monkeypatch, held)
    strategy.save(FOURTH)
    assert 1 not in steps(held)
    strategy.close()
    assert steps(held) == [3, 4]

    checkpoints = read_trace(trace).checkpoints
    third, fourth = checkpoints[3], checkpoints[4]
    assert third.save is not None
    assert third.retained is not None
    assert third.durable[SHARED].committed_ns <= third.retained.start_ns
    assert third.save.end_ns < third.retained.end_ns
    assert [hold.why for hold in third.holds] == ["removal"]
    assert fourth.save is not None
    assert third.retained.end_ns <= third.holds[0].end_ns <= fourth.save.start_ns
    removals = [event.step for event in whole_events(trace) if isinstance(event, Retained)]
    assert removals == [3, 4], "where nothing is to remove there is no event"


def test_the_end_waits_for_the_removal(
    held: HeldStore, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = timed(held, built(), trace=trace)
    for position in (FIRST, SECOND, THIRD):
        native.save(position)
    release_when_awaited(monkeypatch, held)
    native.close()
    assert steps(held) == [2, 3]
    assert [hold.why for hold in read_trace(trace).checkpoints[3].holds] == ["end"]


def test_what_cannot_be_removed_ends_no_training_and_goes_later(
    store: CheckpointStore, trace: Path, busy: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    native = timed(store, built(), trace=trace)
    native.save(FIRST), native.settle()
    busy.hold(store.folder / "version-00000001")
    for position in (SECOND, THIRD, FOURTH):
        native.save(position)
    native.settle()
    assert sorted(store.steps()) == [3, 4]
    assert (store.folder / "version-00000001").is_dir()
    assert "version-00000001 cannot be removed" in caplog.text
    busy.free()
    native.save(Position(step=5, epoch=0, step_in_epoch=5)), native.close()
    assert not (store.folder / "version-00000001").exists()
    assert not [event for event in whole_events(trace) if isinstance(event, SaveFailed)]


def test_a_rank_that_another_one_leaves_in_a_save_does_not_blame_its_storage(
    store: CheckpointStore, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = timed(store, built(), trace=trace)

    def gone() -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(native, "_barrier", gone)
    with pytest.raises(LaunchError, match="another rank died in the checkpoint of step 1"):
        native.save(FIRST)
    assert not [event for event in whole_events(trace) if isinstance(event, SaveFailed)]


def test_a_rank_that_another_one_leaves_before_its_versions_are_compared_says_so(
    store: CheckpointStore, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = built()
    gone = False

    def barrier() -> None:
        if gone:
            raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(framework, "barrier", barrier)
    native = timed(store, framework, trace=trace)
    native.save(FIRST), native.settle()
    ((level, version),) = list(native.versions())
    assert (level, version.position) == (SHARED, FIRST)
    gone = True
    with pytest.raises(LaunchError, match="another rank died before its versions were compared"):
        list(native.versions())
