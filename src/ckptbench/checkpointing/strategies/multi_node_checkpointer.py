"""The strategy `multi_node_checkpointer`: ChainerMN's own checkpointer; every rank writes the whole model and optimizer.

It is `chainermn.create_multi_node_checkpointer` of Chainer 7.8.1. R ranks write R times the compressed bytes. A version
that R ranks wrote cannot load on more.

- Chainer itself silently starts from the beginning if no step has a file of every rank. Its `maybe_load` loads pickles, and
  `finalize` deletes all files: ckptbench calls neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chainermn
import numpy as np
from chainer.serializers import NpzDeserializer

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, done, written_file
from ckptbench.checkpointing.state_files import load_own, own_name, save_own
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import reading
from ckptbench.run.position import Position

NAME = "snapshot"
"""The name under which the checkpointer numbers its files. It may contain no dot."""


def snapshot_name(rank: int, step: int) -> str:
    """Name of the checkpointer's file of one rank."""
    return f"{NAME}.{rank}.{step}"


@dataclass(frozen=True, slots=True)
class _Target:
    """Model and optimizer, with the `serialize` that the checkpointer calls."""

    model: Any
    optimizer: Any

    def serialize(self, serializer: Any) -> None:
        self.model.serialize(serializer["model"])
        self.optimizer.serialize(serializer["optimizer"])


class MultiNodeCheckpointer(Strategy):
    """Blocks until this rank's files are written.

    After more than ten saves the checkpointer agrees with the other ranks, through collectives, on which of its files to
    remove. So it is called in the training thread alone, and each version has a folder of its own, out of its reach.
    """

    _checkpointer: Any = None

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        rank = self._world.rank
        (slot,) = slots
        staging = slot.open()
        self._on_stage("begun")
        own = save_own(staging, rank, self._training_state.local_state())
        if self._checkpointer is None:
            self._checkpointer = chainermn.create_multi_node_checkpointer(
                NAME, self._training_state.native_objects["communicator"], path=str(staging)
            )
        self._checkpointer.path = str(staging)
        self._checkpointer.save(self._target(), position.step)
        self._on_stage("written")
        replica = written_file(staging, snapshot_name(rank, position.step), "replica", rank)
        return Shard(captured=done(None), written={slot.level: done((own, replica))})

    def _target(self) -> _Target:
        objects = self._training_state.native_objects
        return _Target(objects["model"], objects["optimizer"])

    def load(self, version: Version, folder: Path) -> None:
        """Every rank reads its own file, so that the version may be of more ranks, but not of fewer."""
        place = self._world
        if version.format != self._format or version.world_size < place.world_size:
            raise CheckpointError(
                f"{version.folder} was written by {version.world_size} ranks as {version.format}, this run has "
                f"{place.world_size} ranks, each of which needs a file of its own as {self._format}; use at most "
                f"{version.world_size} ranks, or remove the folder to start over"
            )
        own = load_own(folder, place.rank)
        snapshot = folder / snapshot_name(place.rank, version.position.step)
        # The checkpointer's own `maybe_load` would load pickles.
        with reading(snapshot), np.load(snapshot, allow_pickle=False) as archive:
            NpzDeserializer(archive).load(self._target())
        with reading(folder / own_name(place.rank)):
            self._training_state.load_local_state(own)
