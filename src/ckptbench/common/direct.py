"""Writes past the page cache, where the file system has them."""

from __future__ import annotations

import errno
import os

NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems without direct writes say."""


def open_direct(path: str) -> int:
    """Open a file for writing: with O_DIRECT, or as usual where there are no direct writes. Raises OSError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno not in NO_DIRECT:
            raise
        return os.open(path, os.O_WRONLY)
