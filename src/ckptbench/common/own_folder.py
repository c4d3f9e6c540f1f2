"""Folders in places that all users of a machine share, as /tmp and /dev/shm: checked before anything in them changes.

Another user may have made a folder of the expected name there, or a link to one of this user's folders.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path


class ForeignFolder(Exception):  # noqa: N818 (no user reads it: its caller knows the remedy)
    """Another user has made what lies at a path, or may have changed it. The message names the path and its owner."""


def make_own(base: Path, *names: str) -> None:
    """Make the folder `base`, and in it folders with these names, each in the one before, that this user alone can enter.

    Raises ForeignFolder if one of them is there and not this user's own, or if another user has made `base` where all may.
    Raises OSError if one cannot be made.
    """
    base.mkdir(parents=True, exist_ok=True)
    check_maker(base)
    path = base
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


def _take(path: Path) -> None:
    """Close the folder to others. Raises ForeignFolder if it is not this user's own."""
    status = path.lstat()
    if status.st_uid != os.geteuid():
        raise _foreign(path, status)
    if not stat.S_ISDIR(status.st_mode):
        raise ForeignFolder(f"{path} is not a folder")
    reachable = path.parent.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    if reachable and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ForeignFolder(
            f"{path} can be written by other users, who could have changed checkpoints"
        )
    if status.st_mode & 0o077:
        path.chmod(stat.S_IRWXU)
