"""The strategy `async`: rank 0 copies model and optimizer and trains on, while a process of its own writes the copy.

Training waits for the copy alone. Memory and process are made at the first save and kept for all that follow, because
fresh memory costs several times the time of a copy. Like `native`, every rank also saves the state that only it has.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ckptbench.checkpoints.pieces import header_of
from ckptbench.checkpoints.version import Version
from ckptbench.frameworks.contract import Arrays
from ckptbench.runs.events import File
from ckptbench.runs.position import Position
from ckptbench.strategies.background import BackgroundWriter
from ckptbench.strategies.contract import SHARED, Opening, Share, Strategy, done
from ckptbench.strategies.own_state import save_own
from ckptbench.strategies.state_files import load_shares, own_share, share_file, share_name

BEGUN, COPIED, WRITTEN = "begun", "copied", "written"
"""Its stages: before the copy, before this rank's files are written, and after."""
WRITING_RANK = 0


class Asynchronous(Strategy):
    """Blocks until this rank's state is copied."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._rank = opening.place.rank
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writer: BackgroundWriter | None = None

    def save(self, position: Position) -> Share:
        staging = self._staging(SHARED, position.step)
        self._reach(BEGUN)
        own = self._subject.rank_state()
        nbytes = self._copy() if self._rank == WRITING_RANK else 0
        self._reach(COPIED)
        written = self._thread.submit(self._write, staging, own, nbytes)
        return Share(captured=done(None), written={SHARED: written})

    def _copy(self) -> int:
        """Copy the state into the shared memory as the file will hold it. Returns the size of the file."""
        share = own_share(self._subject.state(), 0, 1)
        header = header_of([piece for _, piece in share])
        nbytes = len(header) + sum(piece.nbytes for _, piece in share)
        if self._writer is None:
            self._writer = BackgroundWriter.start(nbytes)
        memory = self._writer.memory
        memory[: len(header)] = np.frombuffer(header, np.uint8)
        offset = len(header)
        for tensor, piece in share:
            np.copyto(memory[offset : offset + piece.nbytes], tensor.bytes())
            offset += piece.nbytes
        return nbytes

    def _write(self, staging: Path, own: Arrays, nbytes: int) -> tuple[File, ...]:
        files = [save_own(staging, self._rank, own)]
        if self._writer is not None:
            self._writer.write(staging / share_name(self._rank), nbytes)
            files.append(share_file(staging, self._rank))
        self._reach(WRITTEN)
        return tuple(files)

    def load(self, version: Version, folder: Path) -> None:
        load_shares(version, folder, self._subject, self._rank)

    def held_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.nbytes

    def close(self) -> None:
        self._thread.shutdown()
        if self._writer is not None:
            self._writer.close()
