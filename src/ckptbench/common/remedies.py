"""What to do about an error of the operating system: one remedy for each number, whoever meets it."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AnyPath = str | os.PathLike[str]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
STORAGE = (*FULL, errno.EROFS, errno.EIO, errno.ESTALE)
"""A file system takes no more files, whatever they are."""
LEAST_BYTES = 4096
"""A file system with less room than this takes no further line of a log."""
SERVER_GONE = (errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN)
UNSUPPORTED = (errno.ENODEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY)
BROKEN = (errno.EIO, errno.EUCLEAN, errno.ENXIO, errno.EREMOTEIO)
NOT_THERE = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR)
LOST = "is a link to"
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
    """`<cause>; <remedy>`, to follow what could not be done. A link that points to nothing is both."""
    words = remedy(error, place, other, reading=reading)
    return words if LOST in words else f"{cause(error)}; {words}"


def in_one_line(error: BaseException, *places: AnyPath) -> str | None:
    """An error that no code expected, with its place and remedy. None where its number says nothing: it may be a fault of the code.

    Where the error names no file, the fullest of these places is taken for it, with the working folder.
    """
    named = error.filename if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        return f"no memory is left ({cause(error)}): use fewer ranks, a smaller model or batch_size, or give the job more"
    at = (
        Path(named)
        if isinstance(named, str) and named
        else _fullest([*map(Path, places), Path.cwd()])
    )
    words = words_of(number_of(error), at) if isinstance(error, OSError) else None
    if words is None:
        return None
    where = f"{named}: " if named else ""
    fault = words if LOST in words else f"{cause(error)}; {words}"
    return f"{where}{fault}, and start again"


@contextmanager
def naming(path: AnyPath) -> Iterator[None]:
    """Give this path to the OSErrors of the block that name none, as those of a file that is open already."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def words_of(number: int | None, place: Path, *, reading: bool = False) -> str | None:
    """The remedy of one number. None where nothing is known that would help."""
    if number in NOT_THERE and (lost := lost_link(place)):
        return lost
    match number:
        case errno.ENOSPC:
            return _no_space(place)
        case errno.EFBIG:
            return _too_large(place)
        case errno.EEXIST | errno.EISDIR | errno.ENOTDIR:
            return None if reading else _in_the_way(place)
        case errno.EDQUOT:
            return f"your quota on {mount_of(place)} is used up: free some"
        case errno.EROFS:
            return f"{mount_of(place)} is mounted read-only: mount it for writing"
        case errno.EMFILE:
            limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            return f"this process may have {limit} files open: raise the limit (ulimit -n)"
    if number in UNSUPPORTED:
        return f"the file system of {place} ({type_of(place)}) does not support it: use one that does, such as ext4, xfs or NFS"
    words = _REMEDIES.get(number) if number is not None else None
    return words and words.format(place=place, verb="read" if reading else "write")


# Nothing here asks the place itself: a file server that is gone may never answer.
_REMEDIES: dict[int, str] = {
    **dict.fromkeys(SERVER_GONE, "the file server of {place} does not answer or has forgotten the file: mount it again"),
    **dict.fromkeys(BROKEN, "the storage of {place} fails: read the kernel's messages (dmesg), and use another disk"),
    errno.EACCES: "let this user {verb} {place}",
    errno.EPERM: "let this user {verb} {place}",
    errno.ENFILE: "all processes of this machine together have too many files open: end some of them",
    errno.ENOMEM: "no memory is left: end other programs, or give the job more memory",
    errno.EAGAIN: "this user or this job has too many processes or threads: end some, or raise the limit (ulimit -u)",
    errno.ENAMETOOLONG: "the path or a name in it is too long: use a folder with a shorter path",
    errno.ELOOP: "links at {place} lead in a circle: remove them",
    errno.ENOTEMPTY: "something still writes to {place}: end it",
    errno.EBUSY: "something uses {place}: end it",
    errno.ETXTBSY: "something runs {place}: end it",
    errno.EDEADLK: "locks on {place} wait for each other: end the other program",
    errno.ENOLCK: "the file system of {place} gives no locks: use another one",
    errno.E2BIG: "the environment variables or the command are too long: remove variables",
    errno.ECONNREFUSED: "nothing listens there: start what is to answer",
}  # fmt: skip


def _no_space(place: Path) -> str:
    status = _status(place)
    if status is not None and status.f_files and not status.f_favail:
        return f"no inodes are left on {mount_of(place)}: remove files there"
    return f"{free(place)}: free some"


def _too_large(place: Path) -> str:
    limit, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY:
        return f"the limit on file sizes (ulimit -f) is {limit} bytes: raise it"
    return f"the file system of {place} takes no file of this size: use another one"


def _in_the_way(place: Path) -> str:
    found = next(each for each in (place, *place.parents) if os.path.lexists(each))
    return f"remove or rename {found}, which is in the way"


def lost_link(place: AnyPath) -> str | None:
    """What to do about a link to nothing, where the path or one of its parents is one. The system says: exists, or does not."""
    path = Path(place)
    for each in (path, *path.parents):
        if os.path.islink(each) and not os.path.exists(each):
            made = "its folder" if each == path and path.suffix else "that folder"
            return f"{each} {LOST} {os.path.realpath(each)}, which is not there: make {made}, or remove the link"
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
