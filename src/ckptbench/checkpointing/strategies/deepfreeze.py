"""The strategy `deepfreeze`: every rank copies its shard during the next step, or, on a CPU with most frameworks, before it.

After Nicolae et al. 2020 (DeepFreeze, CCGrid). Only the update changes parameters and optimizer slots; the
update waits for their copy. State that the forward pass changes (running statistics, random
states) is copied immediately.

On a CPU (PyTorch, also with Horovod, and Chainer) a background thread would cost training more than an immediate copy. There the
training threads copy immediately, in native code, with the checksum in the same pass, as in `async`. With `CKPTBENCH_COPY=numpy`, or if
the environment was made without a C compiler, a thread copies with NumPy.

- **Files** of one old version (`version-recycled.partial`) stay on the disk for the next save to overwrite, until the run ends.
- **Levels**: `memory` of the node (outlives processes), `node` (a disk of the node) and `shared`
  (`checkpoints.folder`). A level whose option is *n* gets every *n*-th checkpoint, none if 0; one option
  must be 1, as in `{deepfreeze: {memory: 1, node: 2, shared: 4}}`. On one node `memory` and `node` each keep one
  version, which is removed after a successful run. A restart uses the newest intact version, from the nearest level.
- **On several nodes** each node keeps two versions of its ranks' files. A restart on the same nodes takes the newest step that is
  complete there, and copies it to the shared folder; a restart on other nodes uses the newest version in that folder.
- **Not safe** with an optimizer that updates during the backward pass, or with modules whose forward pass changes
  parameters (spectral norm).
- **On a GPU** the update waits in the device's stream, so a save cannot be part of a CUDA graph.
- TensorFlow compiles the wait into its step, so rounding differs from that of other strategies.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, StrategyContext, done
from ckptbench.checkpointing.staging_buffer import StagingBuffer
from ckptbench.checkpointing.state_files import load_shards
from ckptbench.checkpointing.version import Version
from ckptbench.run.events import File
from ckptbench.run.position import Position


class DeepFreeze(Strategy):
    """Returns when the state is copied natively, or else at once: then the update that follows waits for the copy."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._rank = context.world.rank
        self._capturing = ThreadPoolExecutor(1, thread_name_prefix="capture")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._begun: Future[None] = done(None)
        self._captured: Future[None] = done(None)
        self._buffer: StagingBuffer | None = None

    def ready(self) -> None:
        self._buffer = StagingBuffer(self._training_state, self._rank, self._world.world_size)

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        assert self._buffer is not None
        self._on_stage("begun")
        self._buffer.begin(self._training_state.local_state())
        self._begin_capture(self._buffer)
        written = {
            slot.level: self._writing.submit(
                self._write, self._buffer, slot, is_last=slot is slots[-1]
            )
            for slot in slots
        }
        return Shard(captured=self._captured, written=written)

    def _begin_capture(self, buffer: StagingBuffer) -> None:
        if buffer.copies_in_place:
            buffer.capture()
            self._on_stage("captured")
            self._begun = self._captured = done(None)
            return
        self._begun = self._capturing.submit(buffer.capture)
        self._captured = self._capturing.submit(self._finish_capture, buffer, self._begun)

    def _finish_capture(self, buffer: StagingBuffer, begun: Future[None]) -> None:
        begun.result()
        buffer.await_copies()
        self._on_stage("captured")

    def _write(self, buffer: StagingBuffer, slot: Slot, *, is_last: bool) -> tuple[File, ...]:
        self._captured.result()
        files: tuple[File, ...] = buffer.write(slot.open(), slot.recycled)
        if is_last:
            self._on_stage("written")
        return files

    def before_update(self) -> None:
        wait([self._begun])  # an error of it is that of the save, which raises it
        self._training_state.hold_updates()

    def load(self, version: Version, folder: Path) -> None:
        load_shards(version, folder, self._training_state, self._rank)

    def close(self) -> None:
        self._capturing.shutdown()
        self._writing.shutdown()
        if self._buffer is not None:
            self._buffer.close()
