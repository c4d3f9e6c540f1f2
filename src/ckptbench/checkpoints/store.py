"""Checkpoint versions on disk: atomic commit, checksums, retention, the newest complete one.

A version is a folder `version-<step>` whose `manifest.json` names every other file with its size and SHA-256.
It is written as `version-<step>.partial`, every file and the folder are synced to stable storage, and only then
is it renamed: a kill at any moment leaves either the whole version or a partial one that no reader takes.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ckptbench.digest import file_sha256
from ckptbench.errors import CheckpointError, RunFolderError
from ckptbench.manifest import MANIFEST, read_json, write_json
from ckptbench.recorder import clock

log = logging.getLogger(__name__)

PARTIAL = ".partial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far training had come: `step` of the run, and `epoch` (from 0) with the steps done in it."""

    step: int
    epoch: int
    step_in_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A complete checkpoint version."""

    folder: Path
    position: Position
    world_size: int
    format: str
    files: dict[str, int]
    """Bytes by name, without the manifest."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The files of a version on stable storage."""

    files: dict[str, tuple[int, str]]
    """Size and SHA-256 by name."""
    synced_ns: int
    """When the last sync returned, ns of the recorder's clock; the checksums may have taken longer."""


class CheckpointStore:
    """The versions of one run under one folder. One rank commits; every rank may write into `staging`."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def staging(self, step: int) -> Path:
        """The folder into which the files of the version at `step` are to be written; any rank may be first."""
        folder = self.folder / f"version-{step:08d}{PARTIAL}"
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
            name: ((staging / name).stat().st_size, checksum.result())
            for name, checksum in zip(names, checksums, strict=True)
        }
        return Synced(files, synced_ns)

    def commit(
        self,
        staging: Path,
        files: dict[str, tuple[int, str]],
        *,
        position: Position,
        world_size: int,
        format: str,
    ) -> Version:
        """Make the synced files a version: manifest, folder sync, rename, sync of the parent."""
        final = staging.with_name(staging.name.removesuffix(PARTIAL))
        version = Version(
            folder=final,
            position=position,
            world_size=world_size,
            format=format,
            files={name: size for name, (size, _) in files.items()},
        )
        write_json(
            staging / MANIFEST,
            {
                "step": position.step,
                "epoch": position.epoch,
                "step_in_epoch": position.step_in_epoch,
                "world_size": world_size,
                "format": format,
                "files": {
                    name: {"bytes": size, "sha256": checksum}
                    for name, (size, checksum) in files.items()
                },
            },
        )
        fsync(staging / MANIFEST)
        fsync(staging)
        if final.exists():  # the same step again, after a resume from an older version
            shutil.rmtree(final)
        staging.rename(final)
        fsync(self.folder)
        return version

    def retain(self) -> None:
        """Remove all but the newest versions."""
        for folder in self._folders()[self._keep :]:
            shutil.rmtree(folder)

    def discard_partial(self) -> None:
        """Remove what killed attempts left half-written; call it while no rank runs."""
        for folder in self.folder.glob(f"version-*{PARTIAL}"):
            log.info("%s was never committed: removed", folder)
            shutil.rmtree(folder)

    def newest(self) -> Version | None:
        """The newest version that is complete and unchanged, every byte of it read and checked."""
        return next(self._sound_versions(), None)

    def _sound_versions(self) -> Iterator[Version]:
        for folder in self._folders():
            try:
                yield open_version(folder)
            except CheckpointError as error:
                log.warning("%s; trying the version before it", error)

    def _folders(self) -> list[Path]:
        """Newest first."""
        if not self.folder.is_dir():
            return []
        versions = (
            path for path in self.folder.iterdir() if re.fullmatch(r"version-\d+", path.name)
        )
        return sorted(versions, key=lambda path: int(path.name.split("-")[1]), reverse=True)


def open_version(folder: Path) -> Version:
    """Read a version and check every byte of it. Raises CheckpointError naming what differs."""
    version, expected = _read(folder)
    for name, (size, checksum) in expected.items():
        _check_file(folder / name, size, checksum)
    return version


def read_version(folder: Path) -> Version:
    """Read the manifest of a version that was checked before."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[Version, dict[str, tuple[int, str]]]:
    try:
        manifest = read_json(folder / MANIFEST)
        files = {
            str(name): (int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in manifest["files"].items()
        }
        version = Version(
            folder=folder,
            position=Position(
                step=int(manifest["step"]),
                epoch=int(manifest["epoch"]),
                step_in_epoch=int(manifest["step_in_epoch"]),
            ),
            world_size=int(manifest["world_size"]),
            format=str(manifest["format"]),
            files={name: size for name, (size, _) in files.items()},
        )
    except (RunFolderError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {folder} has no readable manifest: {error}") from error
    return version, files


def _check_file(path: Path, size: int, checksum: str) -> None:
    if not path.is_file():
        raise CheckpointError(f"checkpoint file {path} is missing")
    if path.stat().st_size != size:
        raise CheckpointError(
            f"checkpoint file {path} has {path.stat().st_size} bytes, was committed with {size}"
        )
    if file_sha256(path) != checksum:
        raise CheckpointError(f"checkpoint file {path} was changed after its commit")


def fsync(path: Path) -> None:
    """Put a file's bytes, or a folder's entries, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
