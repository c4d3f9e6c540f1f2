"""The error of a failed save: the level and folder that it was to be written to, the cause, and the remedy that fits it."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ckptbench.errors import CheckpointError, LaunchError
from ckptbench.matrix.levels import SETTINGS, SHARED

SPACE_TEXTS = {number: os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)}
"""What libraries say that pass on the words of the system, but not its number."""


class AtLevel(Exception):  # noqa: N818 (no user reads it: it carries the level to where the message is made)
    """An error at one level of a save."""

    def __init__(self, level: str, cause: Exception) -> None:
        super().__init__(f"at the level {level}")
        self.level = level
        self.cause = cause


@contextmanager
def at_level(level: str) -> Iterator[None]:
    """Turn every error of the block into AtLevel. A LaunchError, which is another rank's, stays what it is."""
    try:
        yield
    except LaunchError:
        raise
    except Exception as error:
        raise AtLevel(level, error) from error


def level_and_cause(error: Exception) -> tuple[str | None, Exception]:
    """The level at which the error came, None if it is not known, and the error itself."""
    return (error.level, error.cause) if isinstance(error, AtLevel) else (None, error)


def failed_save(
    step: int, error: Exception, level: str | None, folders: Mapping[str, Path]
) -> CheckpointError:
    """The error of the checkpoint of `step` in one line. `folders` are those of the levels that the save goes to.

    Without a `level` it names them all, and as remedy that of the only one, if it is.
    """
    said = " ".join(f"{type(error).__name__}: {error}".split())
    where = " or ".join(str(folders[each]) for each in ([level] if level else folders))
    at = f", the level {level}," if level and len(folders) > 1 else ""
    known = level or (next(iter(folders)) if len(folders) == 1 else None)
    remedy = None if known is None else _remedy(error, known, folders[known])
    return CheckpointError(
        f"the checkpoint of step {step} cannot be written to {where}{at} ({said})"
        + (f"; {remedy}" if remedy else "")
    )


def _remedy(error: Exception, level: str, folder: Path) -> str | None:
    """What to do about it. None: the error says so itself, or nothing is known of it."""
    number = _number(error)
    other = _another_place(level)
    match number:
        case errno.ENOSPC:
            return _no_space(folder, other)
        case errno.EDQUOT:
            return f"your quota is used up there: free some, {other}"
        case errno.EFBIG:
            return _too_large(other)
        case None:
            # Some libraries do not pass on the cause. The space that is free may tell.
            ours = isinstance(error, CheckpointError | MemoryError)
            return None if ours else f"{_free(folder)}: {_alone(other)}"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"make it writable, {other}"
    if number in (errno.EEXIST, errno.EISDIR, errno.ENOTDIR):
        return f"remove what lies there, {other}"
    return _alone(other)


def _number(error: BaseException) -> int | None:
    """The system's number of the error, of the one that it comes from, or of the one whose words it repeats."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and each.errno is not None:
            return each.errno
        if named := re.search(r"\[Errno (\d+)\]", str(each)):
            return int(named[1])
        for number, text in SPACE_TEXTS.items():
            if text.lower() in str(each).lower():
                return number
        each = each.__cause__
    return None


def _another_place(level: str) -> str:
    setting = SETTINGS[level]
    if level == SHARED:
        return f"or set {setting} to another disk"
    return f"set {setting} to another folder, or set {level}: 0"


def _alone(other: str) -> str:
    """The same words where they are the only remedy."""
    return other.removeprefix("or ")


def _no_space(folder: Path, other: str) -> str:
    status = _status(folder)
    if status is not None and status.f_files and not status.f_favail:
        return f"no inodes are left there: remove files, {other}"
    return f"{_free(folder)}: free some, {other}"


def _too_large(other: str) -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return f"that file system takes no file of this size: {_alone(other)}"
    return f"the limit on file sizes (ulimit -f) is {limit} bytes: raise it"


def _free(folder: Path) -> str:
    status = _status(folder)
    if status is None:
        return "the free space there is not known"
    return f"{status.f_bavail * status.f_frsize / 1e6:.0f} MB are free there"


def _status(folder: Path) -> os.statvfs_result | None:
    """That of the file system which the folder is on, or would be. None: it cannot be asked, as where a disk is gone."""
    for each in (folder, *folder.parents):
        try:
            return os.statvfs(each)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
