"""Locks on open files, which the kernel releases when their process ends."""

from __future__ import annotations

import errno
import fcntl
from typing import IO

WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks say."""


def lock_at_once(file: IO[str]) -> str | None:
    """Lock the file for this process. Returns None, or on a file system without locks what it says.

    Raises BlockingIOError if another process holds the lock, and OSError for any other failure.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return error.strerror
    return None
