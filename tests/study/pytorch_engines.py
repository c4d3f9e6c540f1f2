"""What `test_pytorch_engines.py` asks of the strategies of PyTorch's engines; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scenario import Scenario, open_strategy
from scenarios import main

from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import read_version, version_name
from ckptbench.common.errors import CheckpointError
from ckptbench.common.processes import end_with_parent
from ckptbench.frameworks.contract import Arrays
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import formats_of
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position

SAVED = Position(step=3, epoch=0, step_in_epoch=3)
NEXT = Position(step=4, epoch=0, step_in_epoch=4)
LAST = Position(step=5, epoch=0, step_in_epoch=5)
WAYS = {
    "process": PluginSpec("dcp_async", (("checkpointer", "process"),)),
    "blocking": PluginSpec("torch_checkpointing", (("staging", "blocking"),)),
}
"""Variants whose versions must be whole. The defaults go through `test_frameworks.py`."""
PROCESSES = {"dcp_async": WAYS["process"], "torch_checkpointing": WAYS["blocking"]}
"""By strategy: a variant in which a process writes."""
BLOCKED = {
    "thread": ("__1_0.distcp", PluginSpec("dcp_async")),
    "process": ("__1_0.distcp", WAYS["process"]),
    "torchsnapshot": (".snapshot_metadata", PluginSpec("torchsnapshot")),
    "torch_checkpointing": ("model_0.pt", PluginSpec("torch_checkpointing")),
}
"""A file that one of two ranks writes, and the spec that does."""
LATE = {
    "awaited": PluginSpec("dcp_async", (("staging", "awaited"),)),
    "unawaited": PluginSpec("dcp_async", (("staging", "unawaited"),)),
    "beside": PluginSpec("torch_checkpointing"),
    "beside_unawaited": PluginSpec("torch_checkpointing"),
}
"""Whose copying is slowed. Of `beside_unawaited` the update does not wait for it."""
PATIENCE_S = 300


def engine(framework: str, world: RankContext, folder: Path) -> Arrays:
    """By way: the state `then`, and as it is `loaded`; by kind of staging: the tensors that a late copy finds.

    `failed/<way>`: the error that a save finds after one that could not be written, on any rank. `died/<strategy>`: that
    after the death of the process that writes.
    """
    scenario = Scenario(framework, world, "small_cnn")
    found: Arrays = {}
    opened = []
    before = _helpers()
    for way, spec in WAYS.items():
        opened.append(_open(scenario, folder / way, spec))
        found |= _in(way, _saved_and_loaded(scenario, opened[-1], folder / way))
    for strategy in opened[:-1]:
        strategy.settle()
    found |= _failures(scenario, folder)
    for name in PROCESSES:
        found[f"died/{name}"] = np.asarray(_when_the_process_dies(scenario, folder, name))
    for strategy in opened:
        strategy.close()
    found["left"] = np.asarray(_left(before))
    for kind in LATE:
        found |= _in(kind, _late(scenario, folder / kind, kind))
    return found


def _in(group: str, found: Arrays) -> Arrays:
    return {f"{group}/{name}": array for name, array in found.items()}


def _open(scenario: Scenario, folder: Path, spec: PluginSpec) -> CheckpointManager:
    return open_strategy(
        spec,
        scenario.framework,
        scenario.world,
        format=formats_of("pytorch", spec.name)[0],
        store=CheckpointStore(folder, keep=2),
    )


def _saved_and_loaded(scenario: Scenario, strategy: CheckpointManager, folder: Path) -> Arrays:
    """Two saves, as the second one has the memory of the first. Training goes on while each is written."""
    size = 8 * scenario.world.world_size
    scenario.build()
    scenario.train(0, 3, size)
    strategy.save(SAVED)
    scenario.train(3, 4, size)
    then = scenario.framework.state_dict()
    strategy.save(NEXT)
    scenario.train(4, 6, size)
    strategy.settle()
    scenario.framework.barrier()
    strategy.load(read_version(folder / version_name(NEXT.step)))
    return {**_in("then", then), **_in("loaded", scenario.framework.state_dict())}


def _failures(scenario: Scenario, folder: Path) -> Arrays:
    """One rank cannot write: a folder lies where its file should. Every rank must hear of it."""
    found: Arrays = {}
    for way, (name, spec) in BLOCKED.items():
        strategy = _open(scenario, folder / f"failing_{way}", spec)
        staging = CheckpointStore(folder / f"failing_{way}", keep=2).partial_folder(SAVED.step)
        (staging / name).mkdir(parents=True, exist_ok=True)
        scenario.framework.barrier()
        strategy.save(SAVED)
        found[f"failed/{way}"] = np.asarray(_error_of(lambda: strategy.save(NEXT)))  # noqa: B023
        _close_engine(strategy)
    return found


def _when_the_process_dies(scenario: Scenario, folder: Path, name: str) -> str:
    strategy = _open(scenario, folder / f"died_{name}", PROCESSES[name])
    strategy.ready()
    process = _process_of(strategy)
    if process is not None:
        process.kill()
        process.join()
    scenario.framework.barrier()
    strategy.save(SAVED)
    said = _error_of(lambda: strategy.save(NEXT))
    _close_engine(strategy)
    return said


def _process_of(strategy: CheckpointManager) -> Any:
    """The process that writes for this rank, None where another rank has it.

    Of `dcp_async` it is the one that the strategies of WAYS have started, as a rank has one for all.
    """
    engine = getattr(strategy._strategy, "_engine", None)
    if engine is not None:
        return engine._process
    if strategy._strategy.__class__.__name__ != "DcpAsync":
        return None
    from torch.distributed.checkpoint import _async_process_executor

    return _async_process_executor._CHECKPOINT_PROCESS._save_process


def _close_engine(strategy: CheckpointManager) -> None:
    """After a save that has failed, where a run would end. A rank has one process of `dcp_async` for all its strategies."""
    if hasattr(strategy._strategy, "_engine"):
        strategy._strategy.close()


def _error_of(act: Callable[[], None]) -> str:
    try:
        act()
    except CheckpointError as error:
        return str(error)
    return ""


def _helpers() -> set[str]:
    """Child processes, threads and named shared memory of this process."""
    children: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # this thread has just ended
            children.update((task / "children").read_text().split())
    threads = {thread.name for thread in threading.enumerate()}
    lines = Path("/proc/self/maps").read_text().splitlines()
    segments = {each for each in lines if "/dev/shm/" in each and not each.endswith("(deleted)")}
    return children | threads | segments


def _left(before: set[str]) -> list[str]:
    """What is there and was not `before`, after it had a minute to end. Nothing closes those whose saves have failed."""
    gc.collect()
    deadline = time.monotonic() + 60
    while (left := _helpers() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(left)


def _late(scenario: Scenario, folder: Path, kind: str) -> Arrays:
    """The state `before` and `after` a step, and that `loaded` from the save between, whose copying is slow.

    The first tensors are copied at once. The others are copied when training waits for them or the step is done, or, where
    the save itself waits so that there can be no step, a moment later.
    """
    size = 8 * scenario.world.world_size
    scenario.build()
    scenario.train(0, 3, size)
    strategy = _open(scenario, folder, LATE[kind])
    strategy.ready()
    due = threading.Event()
    hook = None if kind == "beside_unawaited" else strategy.hook
    scenario.framework.before_update = hook and _setting(due, hook)
    before = scenario.framework.state_dict()
    with _slow_copies(due, 0.2 if kind == "awaited" else PATIENCE_S):
        strategy.save(SAVED)
        scenario.train(3, 4, size)
        after = scenario.framework.state_dict()
        due.set()
        strategy.close()
    scenario.framework.before_update = None
    scenario.framework.barrier()
    strategy.load(read_version(folder / version_name(SAVED.step)))
    return {
        **_in("before", before),
        **_in("after", after),
        **_in("loaded", scenario.framework.state_dict()),
    }


def _setting(due: threading.Event, hook: Callable[[], None]) -> Callable[[], None]:
    def wait() -> None:
        due.set()
        hook()

    return wait


AT_ONCE = 3
"""So many tensors are copied before the others have to wait."""


@contextmanager
def _slow_copies(due: threading.Event, most_seconds: float) -> Iterator[None]:
    import torch_checkpointing._state_dict_stager as ours
    from torch.distributed.checkpoint import _state_dict_stager as pytorchs

    stagers = [module.StateDictStager for module in (ours, pytorchs)]
    copies = [stager._offload_tensor for stager in stagers]
    copied = 0

    def slow(copy: Callable[..., Any]) -> Callable[..., Any]:
        def copy_slowly(*args: Any, **kwargs: Any) -> Any:
            nonlocal copied
            copied += 1
            if copied > AT_ONCE:
                due.wait(most_seconds if copied == AT_ONCE + 1 else 0)
            return copy(*args, **kwargs)

        return copy_slowly

    for stager, copy in zip(stagers, copies, strict=True):
        stager._offload_tensor = slow(copy)
    try:
        yield
    finally:
        for stager, copy in zip(stagers, copies, strict=True):
            stager._offload_tensor = copy


ALONE = RankContext(
    rank=0, world_size=1, local_rank=0, node="localhost", threads=1, addresses=("127.0.0.1:0",)
)


LAST_FILES = {"dcp_async": ".metadata.tmp", "torch_checkpointing": "optimizer_0.pt"}


def be_killed(framework: str, name: str, folder: Path) -> None:
    """One rank that no launcher watches is killed while the process of its strategy writes, which never ends.

    The file `pid` takes the process's id before. As a rank does, this one ignores what would end the process by itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scenario = Scenario(framework, ALONE, "small_cnn")
    strategy = _open(scenario, folder / "killed", PROCESSES[name])
    strategy.save(SAVED)
    strategy.settle()
    (folder / "pid").write_text(str(_process_of(strategy).pid))
    staging = CheckpointStore(folder / "killed", keep=2).partial_folder(NEXT.step)
    staging.mkdir()
    os.mkfifo(staging / LAST_FILES[name])  # nobody reads from it
    strategy.save(NEXT)
    while not {path.name for path in staging.iterdir()} & {"__0_0.distcp", "model_0.pt"}:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__mp_main__":  # as in ckptbench.training.rank
    end_with_parent()
if __name__ == "__main__":
    if "be_killed" in sys.argv:
        be_killed(sys.argv[1], sys.argv[-2], Path(sys.argv[-1]))
    main({"engine": engine})
