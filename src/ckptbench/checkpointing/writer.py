"""Files written from memory past the page cache, over those of a removed version where there are some."""

from __future__ import annotations

import fcntl
import os

from ckptbench.common.files import NO_DIRECT, open_direct


def write_file(path: str, recycled: str, content: memoryview) -> None:
    """Write all of a file: `recycled` under its new name `path` if it can be taken, or else a new one.

    It goes past the page cache where the file system allows it. It is not synced. Raises OSError. Another thread can run
    meanwhile, as each write is one call, of all that is left.
    """
    take(recycled, path)
    descriptor = open_direct(path)
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
