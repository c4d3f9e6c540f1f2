"""What to do about an error of the operating system: a remedy where it is certain, the system's own words otherwise."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

AnyPath = str | os.PathLike[str]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
STORAGE = (*FULL, errno.EROFS, errno.EIO, errno.ESTALE)
"""A file system takes no more files, whatever they are."""
LEAST_BYTES = 4096
"""A file system with less room than this takes no further line of a log."""
OF_CODE = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EBADF)
"""Where such an error names no file, it may be a fault of the code."""
SYSTEM_TEXTS = {number: os.strerror(number) for number in FULL}
"""What libraries say that pass on the words of the system, but not its number."""


def number_of(error: BaseException) -> int | None:
    """The system's number of the error, of the one that it comes from, or of the one whose words it repeats."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and each.errno is not None:
            return each.errno
        if named := re.search(r"\[Errno (\d+)\]", str(each)):
            return int(named[1])
        for number, text in SYSTEM_TEXTS.items():
            if text.lower() in str(each).lower():
                return number
        each = each.__cause__
    return None


def cause(error: BaseException) -> str:
    """The error in a few words, without its number and its path: `No space left on device`."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def remedy(error: BaseException, place: AnyPath, other: str = "", *, reading: bool = False) -> str:
    """What to do about an error at this file or folder.

    `other` is what helps beside it, as in "set checkpoints.folder to another disk", and what remains where nothing else is
    known. `reading`: it was to be read, not written.
    """
    named = error.filename if isinstance(error, OSError) else None
    # A name alone is that of a file in a folder that was open.
    at = Path(named) if isinstance(named, str) and os.path.isabs(named) else Path(place)
    words = words_of(number_of(error), at, reading=reading)
    if words is None:
        return other or "correct what the message names, and start again"
    return f"{words}, or {other}" if other else words


def blame(error: BaseException, place: AnyPath, other: str = "", *, reading: bool = False) -> str:
    """`<cause>; <remedy>`, to follow what could not be done."""
    return f"{cause(error)}; {remedy(error, place, other, reading=reading)}"


def in_one_line(error: BaseException, *places: AnyPath) -> str | None:
    """An error that no code expected, with its place and what to do. None where it may be a fault of the code.

    Where the error names no file, the fullest of these places is taken for it, with the working folder.
    """
    if isinstance(error, MemoryError):
        return f"no memory is left ({cause(error)}): use fewer ranks, a smaller model or batch_size, or give the job more"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    named = error.filename if isinstance(error.filename, str) else ""
    if not named and error.errno in OF_CODE:
        return None
    at = Path(named) if named else _fullest([*map(Path, places), Path.cwd()])
    words = words_of(error.errno, at) or "correct what the message names"
    return f"{f'{named}: ' if named else ''}{cause(error)}; {words}, and start again"


def words_of(number: int | None, place: Path, *, reading: bool = False) -> str | None:
    """The remedy of one number. None where nothing is known that would help."""
    match number:
        case errno.ENOSPC:
            status = _status(place)
            if status is not None and status.f_files and not status.f_favail:
                return f"no inodes are left on {mount_of(place)}: remove files there"
            return f"{free(place)}: free some"
        case errno.EDQUOT:
            return f"your quota on {mount_of(place)} is used up: free some"
        case errno.EROFS:
            return f"{mount_of(place)} is mounted read-only: mount it for writing"
        case errno.EACCES | errno.EPERM:
            return f"let this user {'read' if reading else 'write'} {place}"
    return None


def lost_link(place: AnyPath) -> str | None:
    """What to do about a link to nothing, where the path or one of its parents is one."""
    path = Path(place)
    for each in (path, *path.parents):
        if os.path.islink(each) and not os.path.exists(each):
            made = "its folder" if each == path and path.suffix else "that folder"
            return f"{each} is a link to {os.path.realpath(each)}, which is not there: make {made}, or remove the link"
    return None


def free(place: Path) -> str:
    """How much room is left, in words, with the file system."""
    status = _status(place)
    if status is None:
        return "the free space there is not known"
    return f"{status.f_bavail * status.f_frsize / 1e6:.0f} MB are free on {mount_of(place)}"


def is_full(place: AnyPath) -> bool:
    """Whether no room is left for another file there, or for a longer one."""
    status = _status(Path(place))
    return status is not None and (
        status.f_bavail * status.f_frsize < LEAST_BYTES
        or bool(status.f_files and not status.f_favail)
    )


def _fullest(places: list[Path]) -> Path:
    return next((place for place in places if is_full(place)), places[0])


def mount_of(place: Path) -> Path:
    """The folder at which the file system of a file is mounted, or would be, if the file were there."""
    each = _existing(place)
    while not os.path.ismount(each) and each != each.parent:
        each = each.parent
    return each


def _existing(place: Path) -> Path:
    path = Path(os.path.realpath(place))
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), Path("/"))


def type_of(place: Path) -> str:
    """The type of the file system, as the kernel names it."""
    mount = str(mount_of(place))
    try:
        rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "of unknown type"
    return next((row[2] for row in reversed(rows) if row[1] == mount), "of unknown type")


def _status(place: Path) -> os.statvfs_result | None:
    """That of the file system which the place is on, or would be. None: it cannot be asked, as where a disk is gone."""
    try:
        return os.statvfs(_existing(place))
    except OSError:
        return None
