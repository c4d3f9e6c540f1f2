"""The strategy `sharded`: every rank writes an equal shard of model and optimizer while training waits.

Each of R ranks writes 1/R of the bytes; large tensors are cut. If ranks hold shards (`pytorch_fsdp`), each writes and reads only
its own, as with `async` and `deepfreeze`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, done
from ckptbench.checkpointing.pieces import write_pieces
from ckptbench.checkpointing.state_files import (
    load_shards,
    own_shard,
    save_own,
    shard_file,
    shard_name,
)
from ckptbench.checkpointing.version import Version
from ckptbench.run.position import Position


class Sharded(Strategy):
    """Blocks until this rank's files are written."""

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        rank = self._world.rank
        (slot,) = slots
        staging = slot.open()
        self._on_stage("begun")
        own = save_own(staging, rank, self._training_state.local_state())
        shard = own_shard(self._training_state.handles(), rank, self._world.world_size)
        write_pieces(
            staging / shard_name(rank),
            [piece for _, piece in shard],
            (block for handle, piece in shard for block in handle.blocks(piece.bytes)),
        )
        self._on_stage("written")
        return Shard(
            captured=done(None), written={slot.level: done((own, shard_file(staging, rank)))}
        )

    def load(self, version: Version, folder: Path) -> None:
        load_shards(version, folder, self._training_state, self._world.rank)
