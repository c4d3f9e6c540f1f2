"""Checkpoint versions: folders with a manifest that names every file with its size and checksum, and their checks.

Every byte of a version is checked before a framework reads any of it. A version that differs from what was committed is
refused.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from ckptbench.checkpointing.checksum import ALGORITHM, file_checksum
from ckptbench.checkpointing.uploads import object_checksum
from ckptbench.common.errors import CheckpointError, RunFolderError
from ckptbench.common.files import is_inside, read_json, shaped, write_json
from ckptbench.common.objects import ObjectPath, Place
from ckptbench.common.remedies import blame, cause
from ckptbench.common.shape import check
from ckptbench.run.events import File, FileKind
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position

MANIFEST = "manifest.json"
REFUSED_MANIFEST = "manifest-refused.json"
"""Name of the manifest of a version in an object store that was set aside. It makes no version, and stands in the way of none."""
CHECKSUM = "sha256"
"""Manifest entry with the SHA-256 of all other entries, computed from their JSON with sorted keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A complete checkpoint version."""

    folder: Place
    identity: Identity
    """The training that wrote it."""
    position: Position
    world_size: int
    format: str
    files: dict[str, File]
    """All files except the manifest, by name. A file in a sub-folder has the path from `folder` as its name."""
    attempt: int = 1
    """The attempt at the run that wrote it. Two attempts may write the same step, and not always the same bits."""

    def read_by(self, rank: int) -> list[File]:
        """The files that this rank reads to load the version: all except the `own` and `replica` files of other ranks."""
        return [
            file
            for file in self.files.values()
            if file.kind not in ("own", "replica") or file.rank == rank
        ]


Checksums = Mapping[str, str]
"""The checksum of each file, by its name, as `checksum.file_checksum` computes it."""


def version_name(step: int, attempt: int = 1) -> str:
    """Name of the folder of a version.

    In an object store nothing can be renamed, so that from attempt 2 on the attempt that wrote it is part of the name.
    """
    return f"version-{step:08d}" + ("" if attempt == 1 else f".attempt-{attempt}")


def names_in(folder: Path) -> list[str]:
    """Names of all files in a folder and its sub-folders, as paths from the folder, sorted.

    Links are named, not followed. An empty sub-folder is named like a file, so that it does not go unseen. Raises
    OSError where a folder cannot be listed.
    """
    found: list[Path] = []
    folders = [folder]
    for inner in folders:  # it grows meanwhile
        entries = list(inner.iterdir())
        below = {entry for entry in entries if entry.is_dir() and not entry.is_symlink()}
        folders += below
        found += [entry for entry in entries if entry not in below]
        if not entries and inner != folder:
            found.append(inner)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def manifest_of(version: Version, checksums: Checksums) -> dict[str, Any]:
    """The content of the manifest."""
    content = {
        "identity": version.identity.to_json(),
        "step": version.position.step,
        "epoch": version.position.epoch,
        "step_in_epoch": version.position.step_in_epoch,
        "world_size": version.world_size,
        "format": version.format,
        "attempt": version.attempt,
        "files": {
            name: {
                "bytes": file.bytes,
                ALGORITHM: checksums[name],
                "kind": file.kind,
                "rank": file.rank,
            }
            for name, file in version.files.items()
        },
    }
    return {**content, CHECKSUM: _checksum(content)}


def write_manifest(folder: Path, version: Version, checksums: Checksums) -> None:
    """Write the manifest of `version` into `folder`, which still is the staging folder and not `version.folder`."""
    # The store syncs it together with the other files.
    write_json(folder / MANIFEST, manifest_of(version, checksums), synced=False)


def open_version(folder: Place) -> Version:
    """Read a version and check every byte of it. Raises CheckpointError that names the first difference."""
    version, checksums = _read(folder)
    if isinstance(folder, ObjectPath):
        check_objects(folder, version.files.values(), {MANIFEST})
        for name, file in version.files.items():
            if object_checksum(folder / name, file.bytes) != checksums[name]:
                raise CheckpointError(
                    f"checkpoint file {folder / name} was changed after its commit"
                )
        return version
    _check_names(folder, _names_found(folder), version.files)
    for name, file in version.files.items():
        _check_file(folder / name, file.bytes, checksums[name])
    return version


def check_objects(
    folder: ObjectPath, files: Iterable[File], others: AbstractSet[str] = frozenset()
) -> None:
    """Check that the store has these objects of a version in their sizes, these `others`, and no more. Raises CheckpointError."""
    sizes = {file.name: file.bytes for file in files}
    found = {name: size for name, size in folder.below().items() if name != REFUSED_MANIFEST}
    _check_names(folder, found.keys(), sizes, others)
    for name, size in sizes.items():
        if found[name] != size:
            raise CheckpointError(
                f"checkpoint file {folder / name} has {found[name]} bytes, was committed with {size}"
            )


def checksums_of(folder: Place) -> Checksums:
    """The checksums in the manifest of a version that was checked before. Raises as `read_version` does."""
    return _read(folder)[1]


def read_version(folder: Place) -> Version:
    """Read the manifest of a version that was checked before. Raises CheckpointError if the manifest is damaged."""
    return _read(folder)[0]


class _Entry(TypedDict):
    """What a manifest says of a file, beside its checksum."""

    bytes: int
    kind: FileKind
    rank: int | None


class _Manifest(TypedDict):
    """What `write_manifest` writes."""

    identity: dict[str, Any]
    step: int
    epoch: int
    step_in_epoch: int
    world_size: int
    format: str
    attempt: int
    files: dict[str, dict[str, Any]]
    sha256: str


def _read(folder: Place) -> tuple[Version, Checksums]:
    content = _content_of(folder)
    identity = _check_manifest(folder, content)
    entries = content["files"].items()
    checksums = {name: entry[ALGORITHM] for name, entry in entries}
    version = Version(
        folder=folder,
        identity=identity,
        position=Position(
            step=content["step"], epoch=content["epoch"], step_in_epoch=content["step_in_epoch"]
        ),
        world_size=content["world_size"],
        format=content["format"],
        attempt=content["attempt"],
        files={
            name: File(name=name, kind=entry["kind"], rank=entry["rank"], bytes=entry["bytes"])
            for name, entry in entries
        },
    )
    return version, checksums


def _content_of(folder: Place) -> dict[str, Any]:
    try:
        if isinstance(folder, ObjectPath):
            return shaped(folder / MANIFEST, (folder / MANIFEST).read(), dict[str, Any])
        _check_place(folder)
        return read_json(folder / MANIFEST)
    except RunFolderError as error:
        raise CheckpointError(f"checkpoint {folder} has no readable manifest: {error}") from error


def _check_place(folder: Path) -> None:
    """Check that neither the folder nor its manifest is a link: who changes the target would change the version."""
    for path, is_right, what in (
        (folder, stat.S_ISDIR, "folder"),
        (folder / MANIFEST, stat.S_ISREG, "regular file"),
    ):
        try:
            right = is_right(path.lstat().st_mode)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {folder} has no readable manifest: {cause(error)}"
            ) from error
        if not right:
            raise CheckpointError(f"checkpoint {folder} is refused: {path} is no {what}")


def _check_manifest(folder: Place, content: dict[str, Any]) -> Identity:
    """Check that `write_manifest` wrote this manifest for this folder, so that its entries need no further check."""
    path = folder / MANIFEST
    try:
        check(content, _Manifest)
        for name, entry in content["files"].items():
            check(entry, _Entry, name)
            check(entry.get(ALGORITHM), str, f"{name}.{ALGORITHM}")
        identity = Identity.from_json(content["identity"])
    except ValueError as error:
        raise _changed(path, f" ({error})") from error
    said = {name: value for name, value in content.items() if name != CHECKSUM}
    if content[CHECKSUM] != _checksum(said) or not all(map(is_inside, content["files"])):
        raise _changed(path)
    attempt = content["attempt"] if isinstance(folder, ObjectPath) else 1
    if folder.name != version_name(content["step"], attempt):
        raise CheckpointError(f"checkpoint manifest {path} is that of step {content['step']}")
    return identity


def _changed(path: Place, how: str = "") -> CheckpointError:
    return CheckpointError(
        f"checkpoint manifest {path} was changed after its commit, or another version of ckptbench wrote it{how}"
    )


def _checksum(content: dict[str, Any]) -> str | None:
    """None for a content that is nested too deeply to be written as JSON."""
    try:
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return None


def _check_names(
    folder: Place,
    found: AbstractSet[str],
    names: Iterable[str],
    others: AbstractSet[str] = frozenset({MANIFEST}),
) -> None:
    """Check that the folder holds exactly the committed files. A format might read any other file that lies there."""
    committed = {*others, *names}
    if missing := committed - found:
        raise CheckpointError(f"checkpoint file {folder / min(missing)} is missing")
    if unknown := found - committed:
        raise CheckpointError(
            f"checkpoint file {folder / min(unknown)} was not there at the commit: not in the manifest"
        )


def _names_found(folder: Path) -> set[str]:
    try:
        return set(names_in(folder))
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {folder} cannot be listed: {blame(error, folder, reading=True)}"
        ) from error


def _check_file(path: Path, size: int, checksum: str) -> None:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            wrong = "is no regular file"
        elif status.st_size != size:
            wrong = f"has {status.st_size} bytes, was committed with {size}"
        elif file_checksum(path) != checksum:
            wrong = "was changed after its commit"
        else:
            return
    except OSError as error:
        wrong = f"cannot be read: {blame(error, path, 'remove the checkpoint', reading=True)}"
    raise CheckpointError(f"checkpoint file {path} {wrong}")
