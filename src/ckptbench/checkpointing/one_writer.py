"""What strategies share in which one rank gives the whole state to an engine, and the engine writes it behind training."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ckptbench.checkpointing.contract import (
    Shard,
    Slot,
    Strategy,
    StrategyContext,
    done,
    written_file,
)
from ckptbench.checkpointing.state_files import restore_own, save_own
from ckptbench.checkpointing.version import Version
from ckptbench.frameworks.contract import Arrays
from ckptbench.run.events import File
from ckptbench.run.position import Position

WRITING_RANK = 0


class OneWriter(Strategy):
    """Blocks as long as the engine's `_begin`. Every rank also saves the state that only it has, like `native`."""

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._rank = context.world.rank
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._has_begun = False

    @abstractmethod
    def _begin(self, staging: Path) -> Future[None]:
        """Begin to write. The future is done when the state is copied. The first call makes the engine, which is kept."""

    @abstractmethod
    def _finish(self, staging: Path) -> Sequence[str]:
        """Return when all is written: the names of the files in `staging`. Raises the error of the write."""

    @abstractmethod
    def _load(self, folder: Path) -> None:
        """Read what the engine wrote, on every rank."""

    @abstractmethod
    def _end(self) -> None:
        """End the engine, which has written all. Leave nothing of it behind."""

    @property
    def _writes(self) -> bool:
        """Whether this rank gives the engine something to write."""
        return self._rank == WRITING_RANK

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        staging = slot.open()
        self._on_stage("begun")
        own = self._training_state.local_state()
        captured = done(None)
        if self._writes:
            self._has_begun = True
            captured = self._begin(staging)
        written = self._thread.submit(self._write, staging, own, captured)
        return Shard(captured=captured, written={slot.level: written})

    def _write(self, staging: Path, own: Arrays, captured: Future[None]) -> tuple[File, ...]:
        captured.result()
        self._on_stage("copied")
        files = [save_own(staging, self._rank, own)]
        if self._writes:
            names = self._finish(staging)
            files += [written_file(staging, name, "state", None) for name in names]
        self._on_stage("written")
        return tuple(files)

    def load(self, version: Version, folder: Path) -> None:
        """Every rank reads what one rank wrote, so the version may be of any number of ranks."""
        self._load(folder)
        restore_own(version, folder, self._training_state, self._rank)

    def close(self) -> None:
        self._thread.shutdown()
        if self._has_begun:
            self._end()
            self._has_begun = False
