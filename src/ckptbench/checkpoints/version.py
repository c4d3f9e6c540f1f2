"""A checkpoint version: a folder whose manifest names every file in it with size and checksum, and its own checksum.

What is read here is what was committed, or it is refused: a version is checked byte by byte before a framework
sees any of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench.digest import file_sha256
from ckptbench.errors import CheckpointError, RunFolderError
from ckptbench.manifest import MANIFEST, read_json, write_json

CHECKSUM = "sha256"
"""The manifest's checksum of all else that it says: of its JSON with sorted keys."""


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
class Entry:
    """What the manifest says of one file."""

    bytes: int
    sha256: str


Entries = Mapping[str, Entry]


def version_name(step: int) -> str:
    """Of the folder."""
    return f"version-{step:08d}"


def write_manifest(folder: Path, version: Version, entries: Entries) -> None:
    """Put the manifest of `version`, which will be elsewhere, into the folder that holds its files."""
    content = {
        "step": version.position.step,
        "epoch": version.position.epoch,
        "step_in_epoch": version.position.step_in_epoch,
        "world_size": version.world_size,
        "format": version.format,
        "files": {
            name: {"bytes": entry.bytes, "sha256": entry.sha256} for name, entry in entries.items()
        },
    }
    write_json(folder / MANIFEST, {**content, CHECKSUM: _checksum(content)})


def open_version(folder: Path) -> Version:
    """Read a version and check every byte of it. Raises CheckpointError naming what differs."""
    version, entries = _read(folder)
    _check_names(folder, entries)
    for name, entry in entries.items():
        _check_file(folder / name, entry)
    return version


def read_version(folder: Path) -> Version:
    """Read the manifest of a version that was checked before. Raises CheckpointError where it is damaged."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[Version, Entries]:
    try:
        content = read_json(folder / MANIFEST)
    except RunFolderError as error:
        raise CheckpointError(f"checkpoint {folder} has no readable manifest: {error}") from error
    _check_manifest(folder, content)
    entries = {
        name: Entry(entry["bytes"], entry["sha256"]) for name, entry in content["files"].items()
    }
    version = Version(
        folder=folder,
        position=Position(
            step=content["step"], epoch=content["epoch"], step_in_epoch=content["step_in_epoch"]
        ),
        world_size=content["world_size"],
        format=content["format"],
        files={name: entry.bytes for name, entry in entries.items()},
    )
    return version, entries


def _check_manifest(folder: Path, content: dict[str, Any]) -> None:
    """It is what `write_manifest` wrote into this folder: nothing it says needs another check."""
    path = folder / MANIFEST
    said = {name: value for name, value in content.items() if name != CHECKSUM}
    if CHECKSUM not in content:
        raise CheckpointError(
            f"checkpoint manifest {path} has no checksum of itself: an earlier ckptbench wrote it, or it was "
            "changed after its commit"
        )
    if content[CHECKSUM] != _checksum(said):
        raise CheckpointError(f"checkpoint manifest {path} was changed after its commit")
    if folder.name != version_name(content["step"]):
        raise CheckpointError(f"checkpoint manifest {path} is that of step {content['step']}")


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_names(folder: Path, entries: Entries) -> None:
    """A format may read any file that lies there: one that was not committed makes another version of it."""
    try:
        found = set(os.listdir(folder))
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} cannot be listed: {error}") from error
    committed = {MANIFEST, *entries}
    if missing := committed - found:
        raise CheckpointError(f"checkpoint file {folder / min(missing)} is missing")
    if unknown := found - committed:
        raise CheckpointError(
            f"checkpoint file {folder / min(unknown)} was not there at the commit: not in the manifest"
        )


def _check_file(path: Path, entry: Entry) -> None:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            wrong = "is no regular file"
        elif status.st_size != entry.bytes:
            wrong = f"has {status.st_size} bytes, was committed with {entry.bytes}"
        elif file_sha256(path) != entry.sha256:
            wrong = "was changed after its commit"
        else:
            return
    except OSError as error:
        wrong = f"cannot be read: {error}"
    raise CheckpointError(f"checkpoint file {path} {wrong}")
