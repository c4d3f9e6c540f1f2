"""Folders in places that all users of a machine share, as /tmp and /dev/shm: checked before anything in them changes.

Another user may have made a folder of the expected name there, or a link to one of this user's folders. So each component
is opened in the one before, without following a link (openat(2), O_NOFOLLOW), and what is open is checked. Afterwards
paths are as safe: no component is in a folder in which another user may replace it. (Where all may write and the folder is
not sticky, they always may.)
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

MOST_LINKS = 40
"""As many as Linux follows."""
_OPENED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignFolder(Exception):  # noqa: N818 (no user reads it: its caller knows the remedy)
    """Another user has made what lies at a path, or may have changed it. The message names the path and its owner."""


def make_own(base: Path, *names: str) -> None:
    """Make the folder `base`, and in it folders with these names, each in the one before, that this user alone can enter.

    Raises ForeignFolder if one of them is there and not this user's own, or if another user has made a part of `base`
    where all may; then nothing is changed. Raises OSError if one cannot be made.
    """
    descriptor, path = _open_base(base), base
    try:
        for name in names:
            path /= name
            with suppress(FileExistsError):
                os.mkdir(name, stat.S_IRWXU, dir_fd=descriptor)
            inner = _open_own(path, descriptor)
            os.close(descriptor)
            descriptor = inner
    finally:
        os.close(descriptor)


def check_maker(path: Path) -> None:
    """Raises ForeignFolder if another user has made what is at `path`, in a folder in which all users may."""
    _check_maker(path, path.lstat(), path.parent.stat())


def _check_maker(path: Path, status: os.stat_result, parent: os.stat_result) -> None:
    if parent.st_mode & stat.S_IWOTH and status.st_uid not in (0, os.geteuid()):
        raise _foreign(path, status)


def _foreign(path: Path, status: os.stat_result) -> ForeignFolder:
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = f"the id {status.st_uid}"
    kind = "a link" if stat.S_ISLNK(status.st_mode) else "there"
    return ForeignFolder(
        f"{path} is {kind} and belongs to another user, {owner}, who could change checkpoints"
    )


def _open_base(base: Path) -> int:
    """Open the folder, and make what is missing of it. Links are followed, unless another user may have made them."""
    todo, links = deque(base.absolute().parts[1:]), 0
    path, descriptor = Path("/"), os.open("/", _OPENED)
    try:
        while todo:
            name = todo.popleft()
            status = _made(name, descriptor)
            _check_maker(path / name, status, os.fstat(descriptor))
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(base))
                target = Path(os.readlink(name, dir_fd=descriptor))
                todo.extendleft(reversed(target.parts))
                if not target.is_absolute():
                    continue
                name = todo.popleft()
            inner = os.open(name, _OPENED, dir_fd=descriptor)
            os.close(descriptor)
            path, descriptor = path / name, inner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _made(name: str, folder: int) -> os.stat_result:
    """The status of what has this name in the open folder. A new folder where nothing has."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another rank makes it, too
            os.mkdir(name, dir_fd=folder)
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _open_own(path: Path, folder: int) -> int:
    """Open the last component of `path`, in its open `folder`, and close it to others. Raises ForeignFolder."""
    status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    if status.st_uid != os.geteuid():
        raise _foreign(path, status)
    if not stat.S_ISDIR(status.st_mode):
        raise ForeignFolder(f"{path} is no folder")
    reachable = os.fstat(folder).st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    if reachable and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ForeignFolder(
            f"{path} can be written by other users, who could have changed checkpoints"
        )
    descriptor = os.open(path.name, _OPENED & ~os.O_PATH | os.O_RDONLY, dir_fd=folder)
    opened = os.fstat(descriptor)
    if (opened.st_dev, opened.st_ino) != (status.st_dev, status.st_ino):
        os.close(descriptor)
        raise ForeignFolder(f"{path} was replaced meanwhile")
    if opened.st_mode & 0o077:
        os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor
