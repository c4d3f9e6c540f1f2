"""Ranks on several nodes without a launcher: a thread for each rank, and a folder for what belongs to each node."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from numpy_framework import ALONE, NumpyFramework
from strategies import IDENTITY
from test_native import built

from ckptbench.checkpointing.levels import KEPT_SPREAD, Levels
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.state_files import FORMAT
from ckptbench.matrix.levels import MEMORY, SHARED
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.ranks import RankContext, assign_ranks
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder

PATIENCE_S = 300
T = TypeVar("T")


class Meeting:
    """Where the threads of all ranks meet and exchange values."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks)
        self._values: dict[str, dict[int, Any]] = {}

    def wait(self) -> None:
        self._barrier.wait(PATIENCE_S)

    def gather(self, rank: int, name: str, value: Any) -> list[Any]:
        values = self._values.setdefault(name, {})
        values[rank] = value
        self.wait()
        found = [values[each] for each in sorted(values)]
        self.wait()
        return found

    def abort(self) -> None:
        self._barrier.abort()


class Together(NumpyFramework):
    """A framework whose ranks are threads."""

    meeting: Meeting

    def barrier(self) -> None:
        self.meeting.wait()


def places(nodes: Iterable[str]) -> list[RankContext]:
    assignments = assign_ranks(list(nodes))
    return [
        dataclasses.replace(
            ALONE, rank=assignment.rank, world_size=len(assignments), local_rank=assignment.local_rank, node=assignment.node,
            addresses=("127.0.0.1:1",) * len(assignments), nodes=tuple(each.node for each in assignments),
        )
        for assignment in assignments
    ]  # fmt: skip


def levels_of_node(folder: Path, node: str, levels: Iterable[str] = (MEMORY,)) -> Levels:
    near = {level: folder / node / level for level in levels}
    return Levels({**near, SHARED: folder / SHARED}, keep=2, keep_local=KEPT_SPREAD)


class Nodes:
    """One attempt at a run. `nodes` has the node of each rank, one letter a node."""

    def __init__(
        self,
        folder: Path,
        nodes: str,
        *,
        attempt: int = 1,
        after: int = 0,
        levels: Iterable[str] = (MEMORY,),
        levels_of: Callable[[str], Levels] | None = None,
        identity: Identity = IDENTITY,
        **options: int,
    ) -> None:
        """`levels_of` gives the levels of a node by its name. None: folders of `folder`, with these near `levels`."""
        self.identity = identity
        self.folder = folder
        self.places = places(nodes)
        self.meeting = Meeting(len(nodes))
        self.frameworks = [self._framework() for _ in nodes]
        levels_of = levels_of or (lambda node: levels_of_node(folder, node, levels))
        self.levels = [levels_of(world.node) for world in self.places]
        for world, own in zip(self.places, self.levels, strict=True):
            if world.local_rank == 0:
                own.begin_local(after)
        spec = PluginSpec("deepfreeze", tuple(sorted(options.items())))
        self._pool = ThreadPoolExecutor(len(nodes))
        self.ranks = self.all(lambda rank: self._open(rank, spec, attempt))

    def _framework(self) -> Together:
        framework = built()
        framework.__class__ = Together
        framework.meeting = self.meeting  # type: ignore[attr-defined]
        return framework  # type: ignore[return-value]

    def _open(self, rank: int, spec: PluginSpec, attempt: int) -> CheckpointManager:
        timed = CheckpointManager(
            spec,
            training_state=self.frameworks[rank],
            barrier=self.frameworks[rank].barrier,
            world=self.places[rank],
            format=FORMAT,
            identity=self.identity,
            levels=self.levels[rank],
            recorder=Recorder(self.trace(rank)),
            on_stage=lambda stage: None,
            gather=lambda name, value: self.meeting.gather(rank, name, value),
            attempt=attempt,
        )
        timed.ready()
        return timed

    def trace(self, rank: int) -> Path:
        return self.folder / f"trace-{rank}.jsonl"

    def all(self, do: Callable[[int], T]) -> list[T]:
        """Do it on every rank at the same time. Raises the error of the first rank that has one."""

        def one(rank: int) -> T:
            try:
                return do(rank)
            except BaseException:
                self.meeting.abort()  # as a launcher ends the others
                raise

        begun = [self._pool.submit(one, rank) for rank in range(len(self.places))]
        errors = [error for each in begun if (error := each.exception(PATIENCE_S)) is not None]
        own = [error for error in errors if not _is_of_another(error)]
        for error in own or errors:
            raise error
        return [each.result() for each in begun]

    def train(self, *steps: int) -> None:
        """Steps that set all momenta to their number, each with a checkpoint."""
        for step in steps:
            self.all(lambda rank, step=step: self._step(rank, step))  # type: ignore[misc]

    def _step(self, rank: int, step: int) -> None:
        timed, framework = self.ranks[rank], self.frameworks[rank]
        assert timed.hook is not None
        timed.hook()
        for momentum in framework.momenta.values():
            momentum[...] = step
        timed.save(Position(step=step, epoch=0, step_in_epoch=step))

    def settle(self) -> None:
        self.all(lambda rank: self.ranks[rank].settle())

    def close(self, *, complete: bool = False) -> None:
        self.all(lambda rank: self.ranks[rank].close(complete=complete))
        self._pool.shutdown()


def _is_of_another(error: BaseException) -> bool:
    return isinstance(error.__cause__ or error, threading.BrokenBarrierError)
