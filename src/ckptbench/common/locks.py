"""Locks on files, each of which stands for a folder. The kernel releases them when their process ends, even if it is killed."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypedDict, cast

from ckptbench.common.errors import CkptbenchError
from ckptbench.common.files import naming, open_regular
from ckptbench.common.remedies import blame
from ckptbench.common.shape import check

log = logging.getLogger("ckptbench")

WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks say."""
POLL_SECONDS = 0.2


class Noted(TypedDict, total=False):
    """What a lock file says of the process that has written it."""

    host: str
    pid: int
    run_folder: str


@contextmanager
def locked(
    path: Path, folder: Path, raises: type[CkptbenchError], *, patience_s: float = 0.0
) -> Iterator[None]:
    """Hold the lock of `folder`, the file `path`. Raises as `lock` does, and where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path):
            opened = os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT), "r+", encoding="utf-8")
    except OSError as error:
        raise raises(f"{folder} cannot be written: {blame(error, path.parent)}") from error
    with opened as file:
        lock(file, folder, raises, patience_s=patience_s)
        note_holder(file)
        yield


def lock(
    file: IO[str],
    folder: Path,
    raises: type[CkptbenchError],
    *,
    patience_s: float = 0.0,
    instead: str = "",
) -> None:
    """Lock the open file for this process. On a file system without locks the log warns, and nothing is locked.

    Raises `raises` if another process holds the lock for longer than `patience_s`, or if the file system fails. `instead`
    is what else a user can do then.
    """
    end_it = f"end that process, or {instead}" if instead else "or end that process"
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise raises(
                    f"{folder} is in use by {_holder(file)}: wait for it, {end_it}"
                ) from error
            time.sleep(POLL_SECONDS)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                words = blame(error, folder, instead or "have the study on another file system")
                raise raises(f"{folder} cannot be locked: {words}") from error
            log.warning(
                "%s is on a file system without locks (%s): let nothing else use it at the same time",
                folder,
                error.strerror,
            )
            return


def note_holder(file: IO[str], **more: str) -> None:
    """Write into the locked file which process holds it, and `more`, on stable storage. Raises OSError.

    The file stays the same, since the lock is on it and not on its name. So the new line is there before the rest goes.
    """
    file.seek(0)
    file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), **more}) + "\n")
    file.flush()
    file.truncate()
    os.fsync(file.fileno())


def noted(file: IO[str]) -> Noted:
    """What `note_holder` wrote last. Empty for a new file, and for one that a full disk has cut short or that was damaged."""
    file.seek(0)
    try:
        content = json.loads(file.readline())
        check(content, Noted)
    except (ValueError, RecursionError):
        return {}
    return cast(Noted, content)


def _holder(file: IO[str]) -> str:
    content = noted(file)
    if "pid" not in content:
        return "another process"
    run = f", which makes the run {content['run_folder']}" if "run_folder" in content else ""
    return f"process {content['pid']} on {content.get('host', '?')}{run}"
