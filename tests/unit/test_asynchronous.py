"""The strategy `async`: a copy, written by a process of its own while training goes on."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy_framework import ALONE, NumpyFramework
from strategies import clocked
from test_native import FIRST, SECOND, built, newest, same

from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.errors import CheckpointError
from ckptbench.matrix.catalogue import STRATEGIES, SYNCED
from ckptbench.matrix.variant import Variant
from ckptbench.runs.position import Position
from ckptbench.strategies.background import BackgroundWriter
from ckptbench.strategies.clocked import Clocked
from ckptbench.strategies.own_state import own_name
from ckptbench.strategies.state_files import FORMAT, share_name
from ckptbench.world.seats import Place
from tests.living import is_running

ASYNC = Variant("async")
THIRD = Position(step=3, epoch=0, step_in_epoch=3)
PATIENCE_S = 300


@pytest.fixture(autouse=True)
def writers(monkeypatch: pytest.MonkeyPatch) -> list[BackgroundWriter]:
    """The writing processes that a test starts."""
    begin, found = BackgroundWriter.start, []

    def start(nbytes: int) -> BackgroundWriter:
        found.append(begin(nbytes))
        return found[-1]

    monkeypatch.setattr(BackgroundWriter, "start", start)
    return found


def strategy(
    folder: Path,
    framework: NumpyFramework,
    place: Place = ALONE,
    reach: Callable[[str], None] = lambda stage: None,
) -> Clocked:
    store = CheckpointStore(folder, keep=2)
    return clocked(store, framework, place, format=FORMAT, variant=ASYNC, reach=reach)


def pid_of(writer: BackgroundWriter) -> int:
    return writer._process.pid


def is_over(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


def test_the_version_is_the_state_of_its_step_though_training_went_on(
    tmp_path: Path, writers: list[BackgroundWriter]
) -> None:
    framework, then = built(), built()
    saving = strategy(tmp_path / "store", framework)
    saving.save(FIRST)
    for array in (*framework.weights.values(), *framework.momenta.values()):
        array[...] = 1
    saving.close()
    assert not is_running(pid_of(writers[0]))
    version, other = newest(tmp_path / "store"), built(seed=3)
    assert version.files.keys() == {share_name(0), own_name(0)}
    strategy(tmp_path / "store", other).load(version)
    assert same(other.tensors(), then.tensors())


def test_memory_and_process_are_kept_for_all_saves(
    tmp_path: Path, writers: list[BackgroundWriter]
) -> None:
    framework = built()
    saving = strategy(tmp_path / "store", framework)
    for position in (FIRST, SECOND, THIRD):
        framework.weights["head.bias"] += 1
        saving.save(position)
    saving.close()
    assert len(writers) == 1
    version, other = newest(tmp_path / "store"), built(seed=3)
    assert version.position == THIRD
    strategy(tmp_path / "store", other).load(version)
    assert same(other.tensors(), framework.tensors())
    state = sum(tensor.nbytes for tensor in framework.state())
    assert state < writers[0].nbytes <= state + 8192


def test_a_rank_that_writes_no_state_needs_no_process(
    tmp_path: Path, writers: list[BackgroundWriter]
) -> None:
    first, second = (dataclasses.replace(ALONE, rank=rank, world_size=2) for rank in (0, 1))
    ranks = [strategy(tmp_path / "store", built(), place) for place in (first, second)]
    for rank in ranks:
        rank.save(FIRST)
    for rank in ranks:
        rank.close()
    assert len(writers) == 1
    files = newest(tmp_path / "store").files
    assert files.keys() == {share_name(0), own_name(0), own_name(1)}


@pytest.mark.parametrize("then", ["save", "close"])
def test_a_writing_process_that_died_is_an_error_of_what_comes_next(
    tmp_path: Path, writers: list[BackgroundWriter], then: str
) -> None:
    saving = strategy(tmp_path / "store", built())
    saving.save(FIRST)
    saving.settle()
    os.kill(pid_of(writers[0]), signal.SIGKILL)
    saving.save(SECOND)
    with pytest.raises(
        CheckpointError, match=r"of step 2 cannot be written .* has ended with status -9"
    ):
        saving.save(THIRD) if then == "save" else saving.close()
    assert newest(tmp_path / "store").position == FIRST


def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    saving = strategy(tmp_path / "store", built())
    staging = CheckpointStore(tmp_path / "store", keep=2).staging(FIRST.step)
    (staging / share_name(0)).mkdir()
    saving.save(FIRST)
    with pytest.raises(
        CheckpointError, match=rf"{share_name(0)} cannot be written in the background: FileExists"
    ):
        saving.close()


def save_and_die(folder: Path, at: str, told: Path) -> None:
    def die(stage: str) -> None:
        if stage == at and told.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    saving = strategy(folder, built(), reach=die)
    saving.save(FIRST)
    saving.settle()
    writer = saving._strategy._writer  # type: ignore[attr-defined]
    told.write_text(str(pid_of(writer)))
    saving.save(SECOND)
    saving.settle()


@pytest.mark.parametrize("stage", [*STRATEGIES["async"].stages, SYNCED])
def test_a_kill_at_any_stage_leaves_the_version_before_it_and_no_process(
    tmp_path: Path, stage: str
) -> None:
    folder, told = tmp_path / "store", tmp_path / "pid"
    rank = multiprocessing.get_context("fork").Process(
        target=save_and_die, args=(folder, stage, told)
    )
    rank.start()
    rank.join(PATIENCE_S)
    assert rank.exitcode == -signal.SIGKILL
    assert is_over(int(told.read_text()))
    version, other = newest(folder), built(seed=3)
    assert version.position == FIRST
    strategy(folder, other).load(version)
    assert same(other.tensors(), built().tensors())
