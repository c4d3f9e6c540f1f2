"""The strategy `native`: rank 0 writes model and optimizer in the framework's own way while the other ranks wait.

If ranks hold shards (`pytorch_fsdp`), rank 0 first gathers the whole state in host memory.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, done, written_file
from ckptbench.checkpointing.state_files import restore_own, save_own
from ckptbench.checkpointing.uploads import uploading
from ckptbench.checkpointing.version import Version, names_in
from ckptbench.common.objects import ObjectPath, Place
from ckptbench.run.events import File
from ckptbench.run.position import Position


class Native(Strategy):
    """Blocks until this rank's files are written."""

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        staging = slot.place()
        self._on_stage("begun")
        files = [save_own(staging, self._world.rank, self._training_state.local_state())]
        if self._world.rank == 0 or self._training_state.is_sharded:
            files += self._save_state(staging)
        self._on_stage("written")
        return Shard(captured=done(None), written={slot.level: done(tuple(files))})

    def _save_state(self, staging: Place) -> list[File]:
        format = self._training_state.formats[self._format]
        if isinstance(staging, ObjectPath):
            return self._send_state(staging / format.filename)
        format.save(self._training_state, staging / format.filename)
        if self._world.rank != 0:
            return []  # it has only given its shard
        # A format may write several files, or a folder of them, whose names begin with `filename`.
        names = [name for name in names_in(staging) if name.startswith(format.filename)]
        return [written_file(staging, name, "state", None) for name in names]

    def _send_state(self, path: ObjectPath) -> list[File]:
        """The format writes to a stream: see `registry.STREAMED`."""
        format = self._training_state.formats[self._format]
        if self._world.rank != 0:
            format.save(self._training_state, io.BytesIO())  # it only gives its shard
            return []
        with uploading(path) as upload:
            format.save(self._training_state, upload)
        return [upload.file("state", None)]

    def load(self, version: Version, folder: Path) -> None:
        format = self._training_state.formats[self._format]
        format.load(self._training_state, folder / format.filename)
        # Ranks that went on without others may have written it: then it lacks the files of some.
        restore_own(version, folder, self._training_state, self._world.rank)
