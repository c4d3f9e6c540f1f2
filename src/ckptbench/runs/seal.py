"""The seal of a run folder: its presence marks the folder as a result.

`seal.json` is written last. It holds the sizes and SHA-256 of the manifest, of every trace and of the final arrays. A
run folder without it is not a result, because its run has not ended. Files that were changed later no longer match it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptbench.errors import RunFolderError
from ckptbench.machine.files import file_sha256, read_json, write_json
from ckptbench.runs.layout import (
    FINAL_ARRAYS,
    MANIFEST,
    SCHEMA_VERSION,
    SEAL,
    SEAL_COPY,
    trace_path,
)


def seal(folder: Path, ranks: int, made_from: Mapping[str, Any] | None = None) -> None:
    """Write the seal, which makes the folder a result. Call it after all other files are written.

    `made_from` goes into the copy of the seal; see `ckptbench.runs.finished`.
    """
    traces = [trace_path(folder, rank) for rank in range(ranks)]
    files = [folder / MANIFEST, *traces, *sorted(folder.glob(FINAL_ARRAYS))]
    content = {
        "schema_version": SCHEMA_VERSION,
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in files
        },
    }
    write_json(folder / SEAL_COPY, {"seal": content, "made_from": made_from})
    write_json(folder / SEAL, content)


def verify_seal(folder: Path) -> list[Path]:
    """The paths of the sealed files. Raises RunFolderError if one of them is missing or was changed."""
    path = folder / SEAL
    if not path.exists():
        raise RunFolderError(
            f"{folder}: not a result: the run did not end (no {SEAL}); run the study again to finish it"
        )
    content = read_json(path)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise RunFolderError(
            f"{path}: schema_version is {content.get('schema_version')}, this version reads "
            f"{SCHEMA_VERSION}; remove the folder to run the cell again"
        )
    return [_verified(folder / name, seal) for name, seal in content["files"].items()]


def _verified(path: Path, seal: dict[str, Any]) -> Path:
    if not path.exists():
        found = "is missing"
    elif path.stat().st_size != seal["bytes"]:
        found = f"has {path.stat().st_size} bytes, was sealed with {seal['bytes']}"
    elif file_sha256(path) != seal["sha256"]:
        found = "was changed after it was sealed (checksums differ)"
    else:
        return path
    raise RunFolderError(f"{path} {found}; remove {path.parent} to run the cell again")
