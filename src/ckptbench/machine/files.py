"""JSON files, replaced in one step, and checksums of files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ckptbench.errors import RunFolderError


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` in one step, so that a reader sees either the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"{path}: holds no JSON object")
    return content


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
