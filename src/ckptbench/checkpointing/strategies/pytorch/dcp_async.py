"""The strategy `dcp_async`: `torch.distributed.checkpoint.async_save` writes a copy while training continues.

Every rank copies its whole state ("staging") before the next forward pass, which changes running statistics. Then DCP divides
the writing among the ranks as with [`dcp`](#dcp), with the same traps.

- `checkpointer`: a `thread` of the rank writes, or a separate `process` that gets the copy through shared memory. The process
  starts at the first save, which takes seconds longer.
- All saves reuse one staging buffer. With a new stager per save, as in the documentation's first example, they take
  several times as long.
- `staging`: training waits until the state is copied (`awaited`), or continues immediately (`unawaited`). The latter is a negative
  control: its versions mix tensors of different steps.
- Saves have their own process group: on training's group (the documented use) Gloo confuses messages on a CPU.
- With more than about 1,000 tensors and `ulimit -n 1024` a `process` fails with `Too many open files`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _async_process_executor as engine
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, StrategyContext, done
from ckptbench.checkpointing.strategies.pytorch.dcp_files import (
    ObjectWriter,
    first_cause,
    load,
    writer_to,
    written_files,
)
from ckptbench.checkpointing.strategies.pytorch.state import OwnGroup, save_rest, state_of
from ckptbench.checkpointing.strategies.pytorch.writing_process import (
    died,
    end_sharing,
    make_room_for_sockets,
)
from ckptbench.checkpointing.version import Version
from ckptbench.common.memory_kills import MemoryKills
from ckptbench.common.objects import Place
from ckptbench.frameworks.contract import Arrays
from ckptbench.run.events import File
from ckptbench.run.position import Position


class DcpAsync(Strategy):
    """Blocks until this rank's state is copied, if `staging` is `awaited`."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._in_process = self._options["checkpointer"] == "process"
        self._awaits = self._options["staging"] == "awaited"
        self._kills = MemoryKills.now()
        self._stager: DefaultStager | None = None
        # A rank that writes by itself needs to meet nobody.
        alone = self._world.world_size == 1 and not self._in_process
        self._group = None if alone else OwnGroup(self._world.world_size)
        # The writing processes meet at rank 0's host. DCP would look up this host's name instead, which may have no address.
        os.environ.setdefault("MASTER_ADDR", self._world.addresses[0].rpartition(":")[0])
        if self._in_process:
            make_room_for_sockets()
            atexit.register(end_process)  # after an error nobody closes a strategy

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        staging = slot.place()
        writer = writer_to(staging)
        self._on_stage("begun")
        own = self._training_state.local_state()
        state = state_of(self._training_state.native_objects, self._world.rank)
        if self._stager is None:
            self._stager = self._make_stager()
        answer = dcp.async_save(
            state,
            checkpoint_id=staging if writer is None else None,
            storage_writer=writer,
            process_group=self._group and self._group.group,
            no_dist=self._group is None,
            async_stager=self._stager,
            async_checkpointer_type=(
                AsyncCheckpointerType.PROCESS if self._in_process else AsyncCheckpointerType.THREAD
            ),
        )
        uploaded = answer
        if isinstance(answer, dcp.state_dict_saver.AsyncSaveResponse):
            uploaded = answer.upload_completion
            if self._awaits:
                answer.staging_completion.result()
        self._on_stage("copied")
        written: Future[tuple[File, ...]] = Future()
        uploaded.add_done_callback(partial(self._finish, written, staging, writer, own))
        return Shard(captured=done(None), written={slot.level: written})

    def _make_stager(self) -> DefaultStager:
        """On a CPU a copy in a thread would only be a detour, so that only the negative control has one."""
        cuda = self._world.accelerator == "cuda"
        return DefaultStager(
            StagingOptions(
                use_pinned_memory=cuda,
                use_shared_memory=self._in_process,
                use_async_staging=cuda or not self._awaits,
                use_non_blocking_copy=cuda,
            )
        )

    def _finish(
        self,
        written: Future[tuple[File, ...]],
        staging: Place,
        writer: ObjectWriter | None,
        own: Arrays,
        uploaded: Future[Any],
    ) -> None:
        """Called when DCP has written, or has failed to."""
        try:
            uploaded.result()
            rank = self._world.rank
            files = (save_rest(staging, rank, own), *written_files(staging, rank, writer))
            self._on_stage("written")
        except BaseException as error:  # noqa: BLE001 (the training thread raises it; DCP's own is no Exception)
            written.set_exception(self._cause(error))
        else:
            written.set_result(files)

    def _cause(self, error: BaseException) -> Exception:
        """DCP's words are of a broken pipe where the process that writes has died."""
        process = engine._CHECKPOINT_PROCESS if self._in_process else None
        if process is None or process._save_process.is_alive():
            return first_cause(error)
        return died(process._save_process, self._kills)

    def load(self, version: Version, folder: Path) -> None:
        load(version, folder, self._training_state, self._world.rank)

    def close(self) -> None:
        if self._in_process:
            atexit.unregister(end_process)
            end_process()
        if self._stager is not None:
            self._stager.close()
        if self._group is not None:
            self._group.close()


def end_process() -> None:
    """End the process that writes for this one, which DCP keeps for ever. Nothing may be in writing."""
    process, engine._CHECKPOINT_PROCESS = engine._CHECKPOINT_PROCESS, None
    if process is not None:
        process._save_process.kill()
        process._save_process.join()
    end_sharing()
