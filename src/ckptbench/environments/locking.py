"""The lock of an environment's folder: two processes that make the same environment would destroy each other's."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ckptbench.errors import EnvironmentSetupError
from ckptbench.machine.locks import lock_at_once
from ckptbench.remedies import blame

log = logging.getLogger("ckptbench")

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 15.0
"""How long to wait for a locked folder. The processes of a workflow that was killed end within a second or two."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the environment's folder, which the kernel releases when this process ends.

    It is a file beside the folder, for the folder itself is emptied. Raises EnvironmentSetupError if another process
    keeps it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("a+", encoding="utf-8") as file:
        _lock(file, folder)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lock(file: IO[str], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            lacking = lock_at_once(file)
            break
        except BlockingIOError as error:
            if time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                continue
            file.seek(0)
            raise EnvironmentSetupError(
                f"{folder} is being made by another process ({file.read().strip()}): wait until it has ended, or end "
                "it, and start again"
            ) from error
        except OSError as error:
            raise EnvironmentSetupError(
                f"{folder} cannot be locked: {blame(error, folder, 'have the study on another file system')}"
            ) from error
    if lacking is not None:
        log.warning(
            "%s is on a file system without locks (%s): start no two workflows here",
            folder,
            lacking,
        )
