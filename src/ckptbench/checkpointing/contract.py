"""The contract of a strategy, which decides who writes which part of a checkpoint, and when.

A strategy reads no clock, writes no trace, and neither syncs nor commits. `manager.CheckpointManager` wraps it and does all this
in the same way for each, so that all strategies are measured alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.store import Store
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.common.objects import ObjectPath, Place
from ckptbench.frameworks.contract import Arrays, Format, TensorHandle
from ckptbench.matrix.plugin_spec import Option
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.events import File, FileKind
from ckptbench.run.position import Position


class TrainingState(Protocol):
    """The part of a framework that a strategy uses."""

    @property
    def formats(self) -> Mapping[str, Format]:  # type: ignore[type-arg]
        """The framework's own formats for files of model and optimizer, by name."""

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds a shard of model and optimizer, and a format's `save` gathers them."""

    def handles(self) -> Sequence[TensorHandle]:
        """The handles of model and optimizer, which are the same on every rank and which only an update changes."""

    def keep_memory(self, memory: NDArray[np.uint8]) -> None:
        """Prepare host memory to which tensors will be copied many times."""

    def release_memory(self, memory: NDArray[np.uint8]) -> None:
        """Undo `keep_memory`. Nothing is copied there any more."""

    def begin_copies(self) -> None:
        """Let the copies that begin from now on have the values as they are now. Call it in the thread that trains."""

    def hold_updates(self) -> None:
        """Let no update come before the copies that have begun. Call it in the thread that trains."""

    def await_copies(self) -> None:
        """Return when all copies that `TensorHandle.copy_into` has begun are complete."""

    @property
    def native_objects(self) -> Mapping[str, Any]:
        """The library's own objects, for engines that serve one framework. See `Framework.native_objects`."""

    def local_state(self) -> Arrays:
        """A copy of the state that only this rank has. `save` must take it at once: the forward pass changes it."""

    def load_local_state(self, state: Arrays) -> None:
        """Restore a state that `local_state` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyContext:
    """The arguments with which a strategy is opened."""

    training_state: TrainingState
    world: RankContext
    format: str
    """The format of the run's cell: one of `training_state.formats`, or of those that the strategy's registry entry names."""
    options: Mapping[str, Option]
    """Every option of the strategy's registry entry, with its value."""
    on_stage: Callable[[str], None]
    """Must be called with each of the registry entry's `stages` when this rank's shard has reached it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the files of one save go at one level."""

    level: str
    folder: Place
    """The partial folder, which may not be there yet: see `open`. Or the beginning of the names of all objects."""
    recycled: Place
    """The folder in which files of a removed version may lie. A rank may move its own from there into `folder` and write
    over them. Only of use where the registry entry says `recycles`."""

    @classmethod
    def of(cls, store: Store[Any], level: str, step: int) -> Self:
        return cls(level, store.partial_folder(step), store.recycled)

    def open(self) -> Path:
        """Make the folder where it is missing, and return it.

        The first rank that asks creates it. A strategy that writes in the background asks there: training need not wait.
        """
        if isinstance(self.folder, ObjectPath):
            raise CheckpointError(f"this strategy does not write to an object store: {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder

    def place(self) -> Place:
        """`open` for a strategy that writes objects as well (`StrategyEntry.as_objects`)."""
        return self.folder if isinstance(self.folder, ObjectPath) else self.open()


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's part of one version. If a background thread or process fails, a future holds its first error."""

    captured: Future[None]
    """Done when training may change the state again."""
    written: Mapping[str, Future[tuple[File, ...]]]
    """By level, each that the save goes to. Done when this rank's files are in that level's staging folder; the result
    names them."""


def written_file(staging: Path, name: str, kind: FileKind, rank: int | None) -> File:
    """The `File` record of a file in `staging`. `rank`: the rank that it belongs to; None if it belongs to all.

    Of an object, `Upload.file` is the record.
    """
    return File(name=name, kind=kind, rank=rank, bytes=(staging / name).stat().st_size)


T = TypeVar("T")


def done(result: T) -> Future[T]:
    """A future that has this result already."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


class Strategy(ABC):
    """The strategy of one rank."""

    def __init__(self, context: StrategyContext) -> None:
        """Called once a manager, before the framework is built."""
        self._training_state = context.training_state
        self._world = context.world
        self._format = context.format
        self._options = context.options
        self._on_stage = context.on_stage

    def ready(self) -> None:  # noqa: B027 (most strategies need nothing)
        """Prepare for the saves, so that the first one takes no longer than the others: memory, threads, processes.

        Called once the framework is built, before the first step.
        """

    @abstractmethod
    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        """Begin to save the state at `position`. A blocking strategy also ends the save here.

        `slots`: one for each level that this save goes to, the nearest first. A strategy without level options gets one, SHARED.
        Called on every rank at the same step, and never while an earlier save is unfinished. May raise any error of its
        libraries: CheckpointManager turns it into a CheckpointError.
        """

    def before_update(self) -> None:  # noqa: B027 (most strategies need none)
        """Return when all tensors that the optimizer's update changes are captured.

        Called between the gradients and the update of every step that begins before a save is captured. A strategy
        whose `save` always captures the state before it returns need not override it; its steps then have no such call.
        """

    @abstractmethod
    def load(self, version: Version, folder: Path) -> None:
        """Load `version` into the framework. It was built with the same network and optimizer.

        `folder` holds the files of the version, whose bytes were all checked before. Raises CheckpointError if the
        version does not fit this run.
        """

    def close(self) -> None:  # noqa: B027 (a blocking strategy has nothing in flight)
        """Finish the last save. Leave no thread, process or shared memory behind."""
