"""The strategy `dcp`: every rank writes its part with `torch.distributed.checkpoint.save` while training waits.

DCP, a module of PyTorch (2.13), distributes replicated tensors among the ranks by size and cuts none; each shard is written by
the rank that holds it.

- Here the names of running statistics include the rank: with equal names (the documented use) a version would mix ranks.
- Errors are a `CheckpointException`, which `except Exception` does not catch. On a full disk it is `unexpected pos 704 vs 598`.
- The index, `.metadata`, is a pickle; ckptbench's reader unpickles only the types of an index. DCP syncs the index before
  its bytes leave Python's buffer, so it syncs an empty file; ckptbench syncs it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch.distributed.checkpoint as dcp

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, done
from ckptbench.checkpointing.strategies.pytorch.dcp_files import (
    load,
    telling_the_cause,
    writer_to,
    written_files,
)
from ckptbench.checkpointing.strategies.pytorch.state import save_rest, state_of
from ckptbench.checkpointing.version import Version
from ckptbench.run.position import Position


class Dcp(Strategy):
    """Blocks until the files of all ranks are written."""

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        rank = self._world.rank
        (slot,) = slots
        staging = slot.place()
        writer = writer_to(staging)
        self._on_stage("begun")
        own = save_rest(staging, rank, self._training_state.local_state())
        with telling_the_cause():
            dcp.save(
                state_of(self._training_state.native_objects, rank),
                checkpoint_id=staging if writer is None else None,
                storage_writer=writer,
                no_dist=self._world.world_size == 1,
            )
        self._on_stage("written")
        files = (own, *written_files(staging, rank, writer))
        return Shard(captured=done(None), written={slot.level: done(files)})

    def load(self, version: Version, folder: Path) -> None:
        load(version, folder, self._training_state, self._world.rank)
