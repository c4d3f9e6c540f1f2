"""The strategy `torch_checkpointing`: Meta's library of that name; rank 0 writes while training continues.

Version 0.1.1 copies model and optimizer into shared memory in a thread, parallel to the forward and backward pass. The
update waits for the copy (the library's own `CheckpointManager.lock` does the same). A process writes the copy with `torch.save`.

- The forward pass changes running statistics while they are copied: with the examples of its documentation, versions contain statistics
  of the next step. Here each rank copies its own statistics immediately.
- The copying thread makes OpenMP start a second set of threads, which slows down every later step. With `staging: blocking`
  the training thread copies instead, without extra threads, and training waits.
- `O_DIRECT`, its default, is off here: on ext4 it fails with `Invalid argument`. It syncs nothing.
- Its reader unpickles any file, and accepts a tensor of another shape if PyTorch can broadcast it to yours, even
  with `strict`. Here `torch.load` reads with `weights_only`, and shapes are checked.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import torch
from torch_checkpointing.checkpoint_base import CheckpointBase, CheckpointItem
from torch_checkpointing.checkpoint_process import CheckpointProcess, CheckpointProcessConfig
from torch_checkpointing.checkpoint_saver import AsyncCheckpointSaver
from torch_checkpointing.checkpoint_writer import CheckpointWriterArgs, CheckpointWriterConfig
from torch_checkpointing.staging import CheckpointStagerConfig, DefaultStager
from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig
from torch_checkpointing.types import RankInfo

from ckptbench.checkpointing.contract import StrategyContext, done
from ckptbench.checkpointing.one_writer import WRITING_RANK, OneWriter
from ckptbench.checkpointing.strategies.pytorch.state import flat, updated_state
from ckptbench.checkpointing.strategies.pytorch.writing_process import (
    died,
    end_sharing,
    make_room_for_sockets,
)
from ckptbench.common.errors import CheckpointError
from ckptbench.common.memory_kills import MemoryKills
from ckptbench.common.processes import end_with_parent
from ckptbench.frameworks.contract import reading

ALONE = RankInfo(global_rank=0, global_world_size=1, role_rank=0, role_world_size=1)
"""To the library rank 0 is the only one, so nothing in it waits for other ranks."""
PATIENCE_S = 600
"""How long the process may take to start. The library's own 30 seconds are few where PyTorch comes from a slow disk."""
_OF_THE_SYSTEM = re.compile(r"\w+: \[Errno \d+\]")
_DIED = "Child process terminated unexpectedly"
"""How the library's error begins where its process has ended without a word."""


class TorchCheckpointing(OneWriter):
    """Returns while a thread copies, unless `staging` is `blocking`; then the update that follows waits for the copy."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._captured: Future[None] = done(None)
        self._written: Future[None] = done(None)
        self._engine: _Engine | None = None

    def ready(self) -> None:
        """Start the process, and make the memory of the copies."""
        if self._rank == WRITING_RANK and self._engine is None:
            make_room_for_sockets()
            self._engine = _Engine(beside=self._options["staging"] == "beside")
            self._engine.saver.stage(self._state()).result()
            self._has_begun = True

    def _state(self) -> _State:
        return _State(updated_state(self._training_state.native_objects))

    def _begin(self, staging: Path) -> Future[None]:
        self.ready()
        assert self._engine is not None
        self._captured, self._written = self._engine.saver.save(str(staging), self._state())
        return self._captured

    def before_update(self) -> None:
        wait([self._captured])  # an error of it is that of the save, which raises it

    def _finish(self, staging: Path) -> list[str]:
        assert self._engine is not None
        try:
            self._written.result()
        except Exception as error:
            raise self._engine.cause(error) from error
        return [_name(part) for part in self._state().get_items()]

    def _load(self, folder: Path) -> None:
        for part, wanted in updated_state(self._training_state.native_objects).items():
            path = folder / _name(part)
            with reading(path):
                found = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
                _restore(dict(flat(wanted)), dict(flat(found)))

    def _end(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class _State(CheckpointBase):
    """What the library saves, each part into a file of its own."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self._items = {name: CheckpointItem(value) for name, value in parts.items()}

    def get_items(self) -> dict[str, CheckpointItem]:
        return self._items

    def load_state_dict(self, state_dict: Any) -> None:
        raise NotImplementedError("the strategy reads the files")


def _name(part: str) -> str:
    """The library's own name for a part of rank 0."""
    return f"{part}_0.pt"


class _Engine:
    """The library's saver, and its process."""

    def __init__(self, *, beside: bool) -> None:
        self._kills = MemoryKills.now()
        self._writer = CheckpointProcess(
            rank_info=ALONE,
            config=CheckpointProcessConfig(subprocess_init_timeout_secs=PATIENCE_S),
            subprocess_init_fn=end_with_parent,
            subprocess_init_args=(),
            checkpoint_writer_args=CheckpointWriterArgs(
                config=CheckpointWriterConfig(barrier_config=None, write_to_temp_dir=False),
                rank_info=ALONE,
                storage_config=LocalFileSystemStorageConfig(use_direct_io=False),
            ),
        )
        self._writer.wait_for_init()
        atexit.register(self._kill)  # after an error nobody closes a strategy
        stager = DefaultStager(CheckpointStagerConfig(use_async_staging=beside))
        self.saver = AsyncCheckpointSaver(stager, self._writer)

    @property
    def _process(self) -> Any:
        (process,) = self._writer.process.processes
        return process

    def cause(self, error: BaseException) -> CheckpointError:
        """What has failed, of an error that holds the process's traceback in its words."""
        said = str(error)
        if said.startswith(_DIED):
            self._process.join()
            return died(self._process, self._kills)
        lines = said.splitlines() or [type(error).__name__]
        of_the_system: Iterable[str] = filter(_OF_THE_SYSTEM.match, lines)
        return CheckpointError(next(iter(of_the_system), lines[-1]))

    def close(self) -> None:
        """Nothing may be in writing."""
        atexit.unregister(self._kill)
        self.saver.close()
        self._process.join()
        end_sharing()

    def _kill(self) -> None:
        self._process.kill()
        self._process.join()


def _restore(wanted: dict[str, torch.Tensor], found: dict[str, Any]) -> None:
    """Copy the tensors of a file. Raises ValueError or TypeError where they are not exactly the wanted ones."""
    if odd := wanted.keys() ^ found.keys():
        raise ValueError(f"{min(odd)} is not in both")
    for name, tensor in wanted.items():
        value = found[name]
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is no tensor, but {type(value).__name__}")
        if (value.shape, value.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(
                f"{name} has shape {tuple(value.shape)} and type {value.dtype}, here {tuple(tensor.shape)} and {tensor.dtype}"
            )
    for name, tensor in wanted.items():
        tensor.copy_(found[name])
