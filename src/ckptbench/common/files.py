"""Reading and writing of files: JSON, replaced in one step and durable; regular files only; writes past the page cache; checksums."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from ckptbench.common.errors import RunFolderError
from ckptbench.common.remedies import cause, number_of, words_of
from ckptbench.common.shape import WrongShape, check

Shaped = TypeVar("Shaped")

NOT_REGULAR = "it is no regular file"
NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems without direct writes say."""


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give this path to the OSErrors of the block that name none, as those of a file that is open already."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def write_json(path: Path, content: dict[str, Any], *, synced: bool = True) -> None:
    """Replace `path` in one step, so that a reader sees either the old file or the new one, also after a power cut.

    Without `synced` the caller puts the file and its folder on stable storage. Raises OSError with a path.
    """
    partial = path.with_name(path.name + ".partial")
    with naming(path):
        partial.write_text(json_text(content), encoding="utf-8")
        if synced:
            fsync(partial)
        partial.replace(path)
        if synced:
            fsync(path.parent)


def fsync(path: Path) -> None:
    """Put the bytes of a file, or the entries of a folder, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folder: Path) -> None:
    """Put a folder and those in which it lies on stable storage, as far up as this user can have made them."""
    for each in (folder, *folder.parents):
        if not os.access(each, os.R_OK | os.W_OK):
            return
        fsync(each)
        if os.path.ismount(each):
            return


def json_text(content: dict[str, Any]) -> str:
    """The text of the file that `write_json` writes."""
    return json.dumps(content, indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises as `read_shaped` does."""
    return read_shaped(path, dict[str, Any])


def read_shaped(path: Path, shape: type[Shaped]) -> Shaped:
    """The JSON in a file, with the types that `shape` says. Raises RunFolderError where there is none, whatever lies at `path`."""
    try:
        found = read_regular(path)
    except OSError as error:
        known = words_of(number_of(error), path, reading=True)
        raise RunFolderError(
            f"{path}: cannot be read: {cause(error)}{f' ({known})' if known else ''}"
        ) from error
    return shaped(path, found, shape)


def shaped(path: object, found: bytes, shape: type[Shaped]) -> Shaped:
    """The JSON in the bytes of `path`. Raises RunFolderError as `read_shaped` does."""
    try:
        content = json.loads(found.decode("utf-8"))
        check(content, shape)
    except WrongShape as error:
        raise RunFolderError(f"{path}: {error}") from error
    except ValueError as error:
        raise RunFolderError(f"{path}: cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise RunFolderError(f"{path}: cannot be read as JSON: it is nested too deeply") from error
    return cast(Shaped, content)


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError for anything else: a read of a FIFO could wait for ever."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file, opened with these flags. Raises OSError for anything else."""
    in_the_way = OSError(errno.EEXIST, NOT_REGULAR, str(path))
    try:
        # Without O_NONBLOCK the open of a FIFO would already wait for the other end.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a socket
            raise in_the_way from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise in_the_way


def is_inside(name: str) -> bool:
    """Whether a file's name leads to a place inside of the folder that it is joined to, and can be a name at all."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and name.isprintable()


def write_all(file: FileIO, content: memoryview) -> None:
    """Write all of the bytes to an unbuffered file, which may take them in parts. Raises OSError."""
    while content.nbytes:
        content = content[file.write(content) :]


def write_file(path: str, recycled: str, content: memoryview) -> None:
    """Write all of a file: `recycled` under its new name `path` if it can be taken, or else a new one.

    It goes past the page cache where the file system allows it. It is not synced. Raises OSError. Another thread can run
    meanwhile, as each write is one call, of all that is left.
    """
    take(recycled, path)
    descriptor = _open_direct(path)
    try:
        if os.fstat(descriptor).st_size != content.nbytes:
            os.ftruncate(descriptor, 0)
        written = 0
        while written < content.nbytes:
            try:
                written += os.pwrite(descriptor, content[written:], written)
            except OSError as error:
                if error.errno not in NO_DIRECT or not _stop_direct(descriptor):
                    raise
    finally:
        os.close(descriptor)


def _open_direct(path: str) -> int:
    """Open a file for writing: with O_DIRECT, or as usual where there are no direct writes. Raises OSError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno not in NO_DIRECT:
            raise
        return os.open(path, os.O_WRONLY)


def _stop_direct(descriptor: int) -> bool:
    """Write through the page cache from now on. False: it was so before."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return bool(flags & os.O_DIRECT)


def take(recycled: str, path: str) -> None:
    """Give the file `recycled` its new name `path`, or make a new file: where it is not there, cannot be written, or has another
    name too, by which somebody keeps it (`cp -al`)."""
    try:
        os.rename(recycled, path)
    except OSError:
        pass  # a new file serves as well
    else:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW))
            if os.stat(path).st_nlink == 1:
                return
        except OSError:
            pass  # protected, or a link
        os.unlink(path)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, as 64 hexadecimal digits."""
    with open(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unreadable(path: Path) -> str | None:
    """Why this user cannot read the file. None if it can be read."""
    if not path.is_file():
        return f"there is no such file {path}"
    return None if os.access(path, os.R_OK) else f"this user may not read {path}"
