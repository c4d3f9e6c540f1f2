"""The lock of a run folder: no two processes make the same run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ckptbench.errors import LaunchError
from ckptbench.machine.locks import lock_at_once
from ckptbench.remedies import blame

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2


@contextmanager
def locked(folder: Path, *, patience_s: float = 0.0) -> Iterator[None]:
    """Lock the run folder. The kernel releases the lock when this process ends, even if it is killed.

    Raises LaunchError where another process holds the lock for longer than `patience_s`, or where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / ".lock").open("w")
    except OSError as error:
        raise LaunchError(f"{folder} cannot be written: {blame(error, folder)}") from error
    with opened as file:
        lacking = _wait_for(file, folder, time.monotonic() + patience_s)
        if lacking is not None:
            log.warning(
                "%s is on a file system without locks (%s): start no run twice", folder, lacking
            )
        yield


def _wait_for(file: IO[str], folder: Path, deadline: float) -> str | None:
    while True:
        try:
            return lock_at_once(file)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise LaunchError(
                    f"{folder} is in use by another run of the same cell: wait for it, or end that process"
                ) from error
            time.sleep(POLL_SECONDS)
        except OSError as error:
            raise LaunchError(
                f"{folder} cannot be locked: {blame(error, folder, 'have the study on another file system')}"
            ) from error
