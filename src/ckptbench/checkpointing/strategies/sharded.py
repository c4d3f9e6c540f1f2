"""The strategy `sharded`: every rank writes an equal shard of model and optimizer while training waits.

Each of R ranks writes 1/R of the bytes; large tensors are cut. If ranks hold shards (`pytorch_fsdp`), each writes and reads only
its own, as with `async` and `deepfreeze`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, done
from ckptbench.checkpointing.state_files import load_shards, save_own, save_shard
from ckptbench.checkpointing.version import Version
from ckptbench.run.position import Position


class Sharded(Strategy):
    """Blocks until this rank's files are written."""

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        rank = self._world.rank
        (slot,) = slots
        staging = slot.place()
        self._on_stage("begun")
        own = save_own(staging, rank, self._training_state.local_state())
        handles = self._training_state.handles()
        shard = save_shard(staging, handles, rank, self._world.world_size)
        self._on_stage("written")
        return Shard(captured=done(None), written={slot.level: done((own, shard))})

    def load(self, version: Version, folder: Path) -> None:
        load_shards(version, folder, self._training_state, self._world.rank)
