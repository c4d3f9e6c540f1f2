"""The strategy `native`: rank 0 writes model and optimizer the framework's own way while the others wait.

What only a rank itself knows (running statistics, random generators: some hundred kilobytes) it writes beside
them, in `rank-<rank>.npz`, so that the version holds all that every rank needs to go on.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckptbench.cells import NOTHING
from ckptbench.checkpoints.omissions import FORGOTTEN, REPLACED, replaced
from ckptbench.checkpoints.store import CheckpointStore, fsync
from ckptbench.checkpoints.version import Position, Version
from ckptbench.errors import CheckpointError, LaunchError
from ckptbench.frameworks.base import Arrays, Framework, Place, reading
from ckptbench.recorder import clock

SHARED_SECONDS = 60.0
RANK_FILE = r"rank-\d+\.npz"

STAGES = BEGUN, WRITTEN, SYNCED = ("begun", "written", "synced")
"""How far a rank has come with a checkpoint that is not yet a version: its files are not written; they are
written; the files of all ranks are on stable storage with their checksums taken (on rank 0 alone)."""


def no_stop(stage: str) -> None:
    """What a run that nobody interrupts does at a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTimes:
    """When the writing rank's parts of one checkpoint ended, ns of the recorder's clock."""

    written_ns: int
    synced_ns: int
    checked_ns: int
    durable_ns: int
    retained_ns: int
    files: dict[str, int]


class NativeStrategy:
    """Saves and loads the whole state of a run, called by every rank at the same step.

    `at_stage` is called with each of STAGES that this rank reaches in a save.
    """

    def __init__(
        self,
        framework: Framework,
        place: Place,
        store: CheckpointStore,
        format: str,
        *,
        at_stage: Callable[[str], None] = no_stop,
    ) -> None:
        self._framework = framework
        self._place = place
        self._store = store
        self._format = format
        self._at_stage = at_stage

    def save(self, position: Position) -> WriteTimes | None:
        """Returns on every rank once the version is durable; the times on rank 0, None on the others.

        Raises CheckpointError where it cannot be written, whatever the format's own library raised; LaunchError where
        another rank did not come so far.
        """
        try:
            return self._save(position)
        except LaunchError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"the checkpoint of step {position.step} cannot be written to {self._store.folder} "
                f"({type(error).__name__}: {error}); {_free(self._store.folder)}"
            ) from error

    def _save(self, position: Position) -> WriteTimes | None:
        staging = self._store.staging(position.step)
        self._at_stage(BEGUN)
        _save_arrays(staging / _rank_file(self._place.rank), self._framework.rank_state())
        if self._place.rank > 0:
            self._at_stage(WRITTEN)
            # By itself: what its node still holds in memory, rank 0's node cannot put on a shared disk.
            fsync(staging / _rank_file(self._place.rank))
            self._wait(position)  # my file is there
            self._wait(position)  # rank 0 has committed
            return None
        format = self._framework.formats[self._format]
        format.save(self._framework, staging / format.filename)
        written_ns = clock()
        self._at_stage(WRITTEN)
        self._wait(position)
        self._await_ranks(staging)
        synced = self._store.sync(staging)
        checked_ns = clock()
        self._at_stage(SYNCED)
        version = self._store.commit(
            staging,
            synced.files,
            position=position,
            world_size=self._place.world_size,
            format=self._format,
        )
        durable_ns = clock()
        self._store.retain()
        retained_ns = clock()
        self._wait(position)
        return WriteTimes(
            written_ns=written_ns,
            synced_ns=synced.synced_ns,
            checked_ns=checked_ns,
            durable_ns=durable_ns,
            retained_ns=retained_ns,
            files=version.files,
        )

    def _wait(self, position: Position) -> None:
        try:
            self._framework.barrier()
        except Exception as error:
            raise LaunchError(
                f"another rank died in the checkpoint of step {position.step}, and its log says why "
                f"({type(error).__name__}: {error})"
            ) from error

    def _await_ranks(self, staging: Path) -> None:
        """See every rank's file. A shared file system may show another node's a little later, a local disk never."""
        wanted = {_rank_file(rank) for rank in range(self._place.world_size)}
        deadline = time.monotonic() + SHARED_SECONDS
        while missing := wanted.difference(os.listdir(staging)):
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"{staging} lacks {', '.join(sorted(missing))}, which other ranks have written: "
                    "checkpoints.folder must be on a file system that all nodes share"
                )
            time.sleep(0.01)

    def load(self, version: Version, omit: str = NOTHING) -> None:
        """Put the state of `version`, which has been checked, into a framework that was built alike.

        But for what `omit` names, one of `cells.OMISSIONS`: a negative control. The position in the data is the
        caller's to omit. Raises CheckpointError where there is nothing to omit.
        """
        if (version.world_size, version.format) != (self._place.world_size, self._format):
            raise CheckpointError(
                f"{version.folder} was written by {version.world_size} ranks as {version.format}, this run "
                f"has {self._place.world_size} ranks and {self._format}; remove the folder to start anew"
            )
        format = self._framework.formats[self._format]
        format.load(self._framework, version.folder / format.filename)
        with reading(version.folder / _rank_file(self._place.rank)):
            self._framework.load_rank_state(self._rank_state(version, omit))
        if omit in FORGOTTEN:
            self._framework.forget(omit)

    def _rank_state(self, version: Version, omit: str) -> Arrays:
        own = _load_arrays(version.folder / _rank_file(self._place.rank))
        if omit not in REPLACED:
            return own
        if omit == "statistics":  # as if rank 0 alone had saved its own
            return replaced(omit, own, _load_arrays(version.folder / _rank_file(0)))
        return replaced(omit, own, self._framework.rank_state())

    @staticmethod
    def files_read(version: Version, rank: int) -> list[Path]:
        """What one rank reads to load a version: every file of the format, and its own."""
        own = _rank_file(rank)
        return [
            version.folder / name
            for name in version.files
            if name == own or not re.fullmatch(RANK_FILE, name)
        ]


def _free(folder: Path) -> str:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    megabytes = shutil.disk_usage(nearest).free / 1e6
    return (
        f"{megabytes:.0f} MB are free there: free some, or set checkpoints.folder to another disk"
    )


def _rank_file(rank: int) -> str:
    return f"rank-{rank}.npz"


def _save_arrays(path: Path, arrays: Arrays) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    path.write_bytes(buffer.getbuffer())


def _load_arrays(path: Path) -> Arrays:
    with reading(path), np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
