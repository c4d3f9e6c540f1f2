"""The seal of a run folder: its presence marks the folder as a result.

`seal.json` is written last. It holds the sizes and SHA-256 of the manifest, of every trace, of the final arrays, and of
the journals of injectors and launcher. A run folder without it is not a result, because its run has not ended. Files that
were changed later no longer match it.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import file_sha256, fsync, is_inside, read_json, write_json
from ckptbench.common.remedies import blame
from ckptbench.common.shape import WrongShape, check
from ckptbench.run.layout import (
    FINAL_ARRAYS,
    LAUNCHER_TRACE,
    MANIFEST,
    SCHEMA_VERSION,
    SEAL,
    SEAL_COPY,
    STRIKES,
    trace_path,
)


class Sealed(TypedDict):
    """What the seal says of a file."""

    bytes: int
    sha256: str


class Seal(TypedDict):
    """The content of `seal.json`."""

    schema_version: int
    files: dict[str, Sealed]
    """By their names in the run folder."""


def seal(folder: Path, ranks: int, made_from: Mapping[str, Any] | None = None) -> None:
    """Write the seal, which makes the folder a result. Call it after all other files are written. It and they then are on stable storage.

    `made_from` goes into the copy of the seal; see `ckptbench.run.finished`.
    """
    traces = [trace_path(folder, rank) for rank in range(ranks)]
    files = [folder / MANIFEST, *traces, *sorted(folder.glob(FINAL_ARRAYS))]
    files += [*sorted(folder.glob(STRIKES)), *folder.glob(LAUNCHER_TRACE)]
    for path in files:
        fsync(path)
    content: Seal = {
        "schema_version": SCHEMA_VERSION,
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in files
        },
    }
    write_json(folder / SEAL_COPY, {"seal": content, "made_from": made_from})
    write_json(folder / SEAL, dict(content))


def verify_seal(folder: Path) -> list[Path]:
    """The paths of the sealed files. Raises RunFolderError if one of them is missing or was changed."""
    path = folder / SEAL
    if not path.exists():
        raise RunFolderError(
            f"{folder}: not a result: the run did not end (no {SEAL}); run the study again to finish it"
        )
    try:
        content = read_json(path)
    except RunFolderError as error:
        raise RunFolderError(f"{error}; remove {folder} to run the cell again") from error
    if (version := content.get("schema_version")) != SCHEMA_VERSION:
        raise refused(path, f"schema_version is {version}, this version reads {SCHEMA_VERSION}")
    try:
        check(content, Seal)
    except WrongShape as error:
        raise refused(path, str(error)) from error
    if outside := [name for name in content["files"] if "/" in name or not is_inside(name)]:
        raise refused(path, f"is not of this run: it names {outside[0]!r}, which is no file in it")
    return [_verified(folder, name, sealed) for name, sealed in content["files"].items()]


def _verified(folder: Path, name: str, sealed: Sealed) -> Path:
    """The path of a file that is as it was sealed."""
    path = folder / name
    try:
        if not stat.S_ISREG((status := path.lstat()).st_mode):
            found = "is no regular file"
        elif status.st_size != sealed["bytes"]:
            found = f"has {status.st_size} bytes, was sealed with {sealed['bytes']}"
        elif file_sha256(path) != sealed["sha256"]:
            found = "was changed after it was sealed (checksums differ)"
        else:
            return path
    except FileNotFoundError:
        found = "is missing"
    except OSError as error:
        words = blame(error, path, f"remove {folder} to run the cell again", reading=True)
        raise RunFolderError(f"{path} cannot be read: {words}") from error
    raise RunFolderError(f"{path} {found}; remove {folder} to run the cell again")


def refused(path: Path, what: str) -> RunFolderError:
    """The error of a run folder that is no result. `path` is the file in it that shows it."""
    return RunFolderError(f"{path}: {what}; remove {path.parent} to run the cell again")
