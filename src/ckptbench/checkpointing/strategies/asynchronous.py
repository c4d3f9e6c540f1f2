"""The strategy `async`: rank 0 (if sharded, each rank) copies model and optimizer and continues training while a thread writes the copy.

Training waits only for the copy. Its staging buffer is allocated before training and reused, because writing to fresh memory
takes several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, StrategyContext, done
from ckptbench.checkpointing.staging_buffer import StagingBuffer
from ckptbench.checkpointing.state_files import load_shards, save_own
from ckptbench.checkpointing.version import Version
from ckptbench.frameworks.contract import Arrays
from ckptbench.run.events import File
from ckptbench.run.position import Position


class Asynchronous(Strategy):
    """Blocks until this rank's state is copied."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._rank = context.world.rank
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._buffer: StagingBuffer | None = None
        self._writers = self._world.world_size if self._training_state.is_sharded else 1

    def ready(self) -> None:
        if self._rank < self._writers:
            self._buffer = StagingBuffer(self._training_state, self._rank, self._writers)

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        assert (self._buffer is not None) == (self._rank < self._writers), "not ready"
        self._on_stage("begun")
        own = self._training_state.local_state()
        if self._buffer is not None:
            self._buffer.begin(own)
            self._buffer.capture()
            self._buffer.await_copies()
        self._on_stage("copied")
        written = self._thread.submit(self._write, slot, own)
        return Shard(captured=done(None), written={slot.level: written})

    def _write(self, slot: Slot, own: Arrays) -> tuple[File, ...]:
        folder = slot.place()
        if self._buffer is None:
            files: tuple[File, ...] = (save_own(folder, self._rank, own),)
        else:
            files = self._buffer.write(folder, slot.recycled)
        self._on_stage("written")
        return files

    def load(self, version: Version, folder: Path) -> None:
        load_shards(version, folder, self._training_state, self._rank)

    def close(self) -> None:
        self._thread.shutdown()
        if self._buffer is not None:
            self._buffer.close()
