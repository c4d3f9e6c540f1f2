"""Reading and writing of files: JSON, replaced in one step; writes past the page cache; checksums."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

from ckptbench.common.errors import RunFolderError
from ckptbench.common.remedies import cause, naming, number_of, words_of

NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems without direct writes say."""


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` in one step, so that a reader sees either the old file or the new one. Raises OSError with a path."""
    partial = path.with_name(path.name + ".partial")
    with naming(path):
        partial.write_text(json_text(content), encoding="utf-8")
        partial.replace(path)


def json_text(content: dict[str, Any]) -> str:
    """The text of the file that `write_json` writes."""
    return json.dumps(content, indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises RunFolderError if there is none, whatever lies at `path`."""
    try:
        content = json.loads(read_regular(path).decode("utf-8"))
    except OSError as error:
        known = words_of(number_of(error), path, reading=True)
        raise RunFolderError(
            f"{path}: cannot be read: {cause(error)}{f' ({known})' if known else ''}"
        ) from error
    except ValueError as error:
        raise RunFolderError(f"{path}: cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise RunFolderError(f"{path}: cannot be read as JSON: it is nested too deeply") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"{path}: holds no JSON object")
    return content


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError for anything else: a read of a FIFO could wait for ever."""
    # Without O_NONBLOCK the open of a FIFO would already wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_all(file: FileIO, content: memoryview) -> None:
    """Write all of the bytes to an unbuffered file, which may take them in parts. Raises OSError."""
    while content.nbytes:
        content = content[file.write(content) :]


def open_direct(path: str) -> int:
    """Open a file for writing: with O_DIRECT, or as usual where there are no direct writes. Raises OSError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno not in NO_DIRECT:
            raise
        return os.open(path, os.O_WRONLY)


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unreadable(path: Path) -> str | None:
    """Why this user cannot read the file. None if it can be read."""
    if not path.is_file():
        return f"there is no such file {path}"
    return None if os.access(path, os.R_OK) else f"this user may not read {path}"
