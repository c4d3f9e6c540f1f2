"""The strategy `native`: rank 0 writes model and optimizer the framework's own way while the others wait.

What only a rank itself knows (running statistics, random generators: some hundred kilobytes) it writes beside
them, in `rank-<rank>.npz`, so that the version holds all that every rank needs to go on.
"""

from __future__ import annotations

import io
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckptbench.checkpoints.store import CheckpointStore, Position, Version
from ckptbench.errors import CheckpointError
from ckptbench.frameworks.base import Arrays, Framework, Place
from ckptbench.recorder import clock

SHARED_SECONDS = 60.0


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
    """Saves and loads the whole state of a run, called by every rank at the same step."""

    def __init__(
        self, framework: Framework, place: Place, store: CheckpointStore, format: str
    ) -> None:
        self._framework = framework
        self._place = place
        self._store = store
        self._format = format

    def save(self, position: Position) -> WriteTimes | None:
        """Returns on every rank once the version is durable; the times on rank 0, None on the others.

        Raises CheckpointError where it cannot be written, whatever the format's own library raised.
        """
        try:
            return self._save(position)
        except Exception as error:
            raise CheckpointError(
                f"the checkpoint of step {position.step} cannot be written to {self._store.folder} "
                f"({type(error).__name__}: {error}); {_free(self._store.folder)}"
            ) from error

    def _save(self, position: Position) -> WriteTimes | None:
        staging = self._store.staging(position.step)
        _save_arrays(staging / _rank_file(self._place.rank), self._framework.rank_state())
        if self._place.rank > 0:
            self._framework.barrier()  # my file is there
            self._framework.barrier()  # rank 0 has committed
            return None
        format = self._framework.formats[self._format]
        format.save(self._framework, staging / format.filename)
        written_ns = clock()
        self._framework.barrier()
        self._await_ranks(staging)
        synced = self._store.sync(staging)
        checked_ns = clock()
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
        self._framework.barrier()
        return WriteTimes(
            written_ns=written_ns,
            synced_ns=synced.synced_ns,
            checked_ns=checked_ns,
            durable_ns=durable_ns,
            retained_ns=retained_ns,
            files=version.files,
        )

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

    def load(self, version: Version) -> None:
        """Put the state of `version`, which has been checked, into a framework that was built alike."""
        if (version.world_size, version.format) != (self._place.world_size, self._format):
            raise CheckpointError(
                f"{version.folder} was written by {version.world_size} ranks as {version.format}, this run "
                f"has {self._place.world_size} ranks and {self._format}; remove the folder to start anew"
            )
        format = self._framework.formats[self._format]
        format.load(self._framework, version.folder / format.filename)
        self._framework.load_rank_state(_load_arrays(version.folder / _rank_file(self._place.rank)))


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
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
