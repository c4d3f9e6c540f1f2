"""The store of a run's checkpoint versions: atomic commit, removal of old versions, search for the newest sound one.

A version is written as `version-<step>.partial`. Only after all its files and the folder are on stable storage is it
renamed to `version-<step>`. So a kill at any moment leaves either the whole version or a partial one that no reader
takes. A version that was damaged after its commit is set aside as `version-<step>.refused`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ckptbench.checkpoints.checksum import file_checksum
from ckptbench.checkpoints.version import (
    MANIFEST,
    Checksums,
    Version,
    open_version,
    version_name,
    write_manifest,
)
from ckptbench.errors import CheckpointError
from ckptbench.machine.clock import clock
from ckptbench.runs.events import File
from ckptbench.runs.identity import Identity
from ckptbench.runs.position import Position

log = logging.getLogger(__name__)

PARTIAL = ".partial"
REFUSED = ".refused"


@dataclass(frozen=True, slots=True)
class Synced:
    """The files of a version, which are on stable storage."""

    checksums: Checksums
    synced_ns: int
    """When the last sync returned, ns of `machine.clock`. The checksums may have taken longer."""


class CheckpointStore:
    """The versions of one run in one folder. Every rank may write into `staging`, but only one rank commits."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def staging(self, step: int) -> Path:
        """The folder for the files of the version of `step`. The first rank that asks creates it."""
        folder = self.folder / (version_name(step) + PARTIAL)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync(self, staging: Path) -> Synced:
        """Put every file of `staging` on stable storage. A second thread computes the checksums at the same time."""
        names = sorted(path.name for path in staging.iterdir())
        with ThreadPoolExecutor(1) as pool:
            checksums = [pool.submit(file_checksum, staging / name) for name in names]
            for name in names:
                fsync(staging / name)
            synced_ns = clock()
        found = zip(names, checksums, strict=True)
        return Synced({name: checksum.result() for name, checksum in found}, synced_ns)

    def commit(
        self,
        staging: Path,
        files: Iterable[File],
        checksums: Checksums,
        *,
        identity: Identity,
        position: Position,
        world_size: int,
        format: str,
    ) -> Version:
        """Turn the synced files into a version: write the manifest, sync the folder, rename it, sync its parent.

        Raises CheckpointError if the folder has a file that is not in `files`.
        """
        final = self.folder / version_name(position.step)
        version = Version(
            folder=final,
            identity=identity,
            position=position,
            world_size=world_size,
            format=format,
            files={file.name: file for file in files},
        )
        if unknown := checksums.keys() - version.files.keys():
            raise CheckpointError(
                f"{staging / min(unknown)} belongs to no rank's share of the version: the strategy did not name it"
            )
        write_manifest(staging, version, checksums)
        fsync(staging / MANIFEST)
        fsync(staging)
        if final.exists():  # the run wrote this step before it resumed from an older version
            _remove(final)
        staging.rename(final)
        fsync(self.folder)
        return version

    def surplus(self) -> list[Path]:
        """All versions except the newest `keep`, and all refused ones, which a newer version has replaced."""
        return [*self._folders()[self._keep :], *self.folder.glob(f"version-*{REFUSED}")]

    def retain(self) -> None:
        """Remove the surplus. A kill meanwhile leaves the newest `keep` versions as they are.

        A refused one that cannot be removed is left, and the log says so: it may never end a save that went well.
        """
        for folder in self.surplus():
            try:
                _remove(folder)
            except OSError as error:
                if not folder.name.endswith(REFUSED):
                    raise
                log.warning("%s cannot be removed (%s): remove it", folder, error)

    def clear(self) -> None:
        """Remove every version, also half-written and refused ones. Call it while no rank runs.

        Raises CheckpointError if one cannot be removed.
        """
        for folder in list(self.folder.glob("version-*")):
            try:
                _remove(folder)
            except OSError as error:
                raise CheckpointError(
                    f"{folder} of an earlier run cannot be removed ({error}): remove it"
                ) from error

    def discard_partial(self) -> None:
        """Remove the half-written versions of killed attempts. Call it while no rank runs."""
        for folder in self.folder.glob(f"version-*{PARTIAL}"):
            log.info("%s was never committed: removed", folder)
            _remove(folder)

    def newest(self) -> Version | None:
        """The newest version that is complete and unchanged, after a check of every byte; None if there is none.

        Newer, damaged versions are set aside. Otherwise `retain` would count them and remove sound versions instead.
        Call it while no rank runs. Raises CheckpointError if a damaged version cannot be set aside.
        """
        refused = 0
        for folder in self._folders():
            try:
                version = open_version(folder)
            except CheckpointError as error:
                log.warning("%s; set aside as %s", error, self.set_aside(folder).name)
                refused += 1
            else:
                if refused:
                    log.warning("%s is sound, and taken instead", folder)
                return version
        if refused:
            log.warning("%s holds no sound version", self.folder)
        return None

    def set_aside(self, folder: Path) -> Path:
        """Rename a version that must not be read, and return its new path. Raises CheckpointError."""
        aside = folder.with_name(folder.name + REFUSED)
        try:
            if os.path.lexists(aside):
                _remove(aside)
            return folder.rename(aside)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {folder} is damaged and cannot be set aside ({error}): remove it"
            ) from error

    def _folders(self) -> list[Path]:
        """Folders of the committed versions, newest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"the checkpoints cannot be listed: {error}") from error
        versions = (self.folder / name for name in names if re.fullmatch(r"version-\d+", name))
        return sorted(versions, key=lambda path: int(path.name.split("-")[1]), reverse=True)


def _remove(path: Path) -> None:
    """Remove a folder, a file or a link. The damage to a version may have put a file or a link in its place."""
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        _allow_removal(path)
        shutil.rmtree(path)


def _allow_removal(folder: Path) -> None:
    """Let the owner list and change the folder and all folders in it. The damage may have been to their modes."""
    folder.chmod(stat.S_IRWXU)
    for parent, names, _ in os.walk(folder):  # it lists a folder only after the loop has seen it
        for name in names:
            if not (inner := Path(parent, name)).is_symlink():
                inner.chmod(stat.S_IRWXU)


def fsync(path: Path) -> None:
    """Put the bytes of a file, or the entries of a folder, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
