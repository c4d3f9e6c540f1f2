"""Folders in places that all users of a machine share, as /tmp and /dev/shm: checked before anything in them changes.

Another user may have made a folder of the expected name there, or a link to one of this user's folders. So the components
are checked from the root on. What this user or root has made cannot be replaced by others afterwards, unless all may write
to a folder that is not sticky: there they always may.
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


class ForeignFolder(Exception):  # noqa: N818 (no user reads it: its caller knows the remedy)
    """Another user has made what lies at a path, or may have changed it. The message names the path and its owner."""


def make_own(base: Path, *names: str) -> None:
    """Make the folder `base`, and in it folders with these names, each in the one before, that this user alone can enter.

    Raises ForeignFolder if one of them is there and not this user's own, or if another user has made a part of `base`
    where all may; then nothing is changed. Raises OSError if one cannot be made.
    """
    path = _made_base(base)
    for name in names:
        path /= name
        with suppress(FileExistsError):
            path.mkdir(stat.S_IRWXU)
        _take(path)


def check_maker(path: Path) -> None:
    """Raises ForeignFolder if another user has made what is at `path`, in a folder in which all users may."""
    status = path.lstat()
    if path.parent.stat().st_mode & stat.S_IWOTH and status.st_uid not in (0, os.geteuid()):
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


def _made_base(base: Path) -> Path:
    """Make what is missing of the folder, and return its path without links, each of which was checked."""
    todo, links, path = deque(base.absolute().parts[1:]), 0, Path("/")
    while todo:
        name = todo.popleft()
        path = path.parent if name == ".." else path / name
        with suppress(FileExistsError):  # another rank makes it, too
            if not os.path.lexists(path):
                path.mkdir()
        check_maker(path)
        if path.is_symlink():
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(base))
            todo.extendleft(reversed(path.readlink().parts))
            path = path.parent
    return path


def _take(path: Path) -> None:
    """Close the folder to others. Raises ForeignFolder if it is not this user's own."""
    status = path.lstat()
    if status.st_uid != os.geteuid():
        raise _foreign(path, status)
    if not stat.S_ISDIR(status.st_mode):
        raise ForeignFolder(f"{path} is no folder")
    reachable = path.parent.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    if reachable and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ForeignFolder(
            f"{path} can be written by other users, who could have changed checkpoints"
        )
    if status.st_mode & 0o077:
        path.chmod(stat.S_IRWXU)
