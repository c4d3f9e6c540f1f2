"""Checkpoint versions on disk: atomic commit, retention, the newest sound one.

A version is written as `version-<step>.partial`, every file and the folder are synced to stable storage, and only
then is it renamed to `version-<step>`: a kill at any moment leaves either the whole version or a partial one that
no reader takes. One that was damaged since is set aside as `version-<step>.refused`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ckptbench.checkpoints.version import (
    Entries,
    Entry,
    Position,
    Version,
    open_version,
    version_name,
    write_manifest,
)
from ckptbench.digest import file_sha256
from ckptbench.errors import CheckpointError
from ckptbench.manifest import MANIFEST
from ckptbench.recorder import clock

log = logging.getLogger(__name__)

PARTIAL = ".partial"
REFUSED = ".refused"


@dataclass(frozen=True, slots=True)
class Synced:
    """The files of a version on stable storage."""

    files: Entries
    synced_ns: int
    """When the last sync returned, ns of the recorder's clock; the checksums may have taken longer."""


class CheckpointStore:
    """The versions of one run under one folder. One rank commits; every rank may write into `staging`."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def staging(self, step: int) -> Path:
        """The folder into which the files of the version at `step` are to be written; any rank may be first."""
        folder = self.folder / (version_name(step) + PARTIAL)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync(self, staging: Path) -> Synced:
        """Put every file of `staging` on stable storage, and take its checksum while the device works."""
        names = sorted(path.name for path in staging.iterdir())
        with ThreadPoolExecutor(1) as pool:
            checksums = [pool.submit(file_sha256, staging / name) for name in names]
            for name in names:
                fsync(staging / name)
            synced_ns = clock()
        files = {
            name: Entry((staging / name).stat().st_size, checksum.result())
            for name, checksum in zip(names, checksums, strict=True)
        }
        return Synced(files, synced_ns)

    def commit(
        self, staging: Path, files: Entries, *, position: Position, world_size: int, format: str
    ) -> Version:
        """Make the synced files a version: manifest, folder sync, rename, sync of the parent."""
        final = self.folder / version_name(position.step)
        version = Version(
            folder=final,
            position=position,
            world_size=world_size,
            format=format,
            files={name: entry.bytes for name, entry in files.items()},
        )
        write_manifest(staging, version, files)
        fsync(staging / MANIFEST)
        fsync(staging)
        if final.exists():  # the same step again, after a resume from an older version
            _remove(final)
        staging.rename(final)
        fsync(self.folder)
        return version

    def retain(self) -> None:
        """Remove all but the newest versions, and those that were refused: by now a newer one is whole."""
        for folder in (*self._folders()[self._keep :], *self.folder.glob(f"version-*{REFUSED}")):
            _remove(folder)

    def discard_partial(self) -> None:
        """Remove what killed attempts left half-written; call it while no rank runs."""
        for folder in self.folder.glob(f"version-*{PARTIAL}"):
            log.info("%s was never committed: removed", folder)
            _remove(folder)

    def newest(self) -> Version | None:
        """The newest version that is complete and unchanged, every byte of it read and checked.

        Newer ones are set aside, as otherwise they would count among those that `retain` keeps, in place of what
        the run goes on to write. Call it while no rank runs. Raises CheckpointError where that is impossible.
        """
        refused = 0
        for folder in self._folders():
            try:
                version = open_version(folder)
            except CheckpointError as error:
                log.warning("%s; set aside as %s", error, _set_aside(folder).name)
                refused += 1
            else:
                if refused:
                    log.warning("%s is sound, and taken instead", folder)
                return version
        if refused:
            log.warning("%s holds no sound version", self.folder)
        return None

    def _folders(self) -> list[Path]:
        """Newest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"the checkpoints cannot be listed: {error}") from error
        versions = (self.folder / name for name in names if re.fullmatch(r"version-\d+", name))
        return sorted(versions, key=lambda path: int(path.name.split("-")[1]), reverse=True)


def _set_aside(folder: Path) -> Path:
    aside = folder.with_name(folder.name + REFUSED)
    try:
        if os.path.lexists(aside):
            _remove(aside)
        return folder.rename(aside)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {folder} is damaged and cannot be set aside ({error}): remove it"
        ) from error


def _remove(path: Path) -> None:
    """Whatever it is: what damaged a version may have put a file or a link in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def fsync(path: Path) -> None:
    """Put a file's bytes, or a folder's entries, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
