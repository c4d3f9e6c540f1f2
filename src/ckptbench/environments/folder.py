"""The folder of an environment: one process makes it at a time, and what was there before makes way."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from pathlib import Path

from ckptbench.errors import EnvironmentSetupError
from ckptbench.machine import locks
from ckptbench.machine.removal import make_way

log = logging.getLogger("ckptbench")

PATIENCE_SECONDS = 15.0
"""How long to wait for a locked folder. The processes of a workflow that was killed end within a second or two."""


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of the environment's folder: a file beside it, for the folder itself is emptied."""
    path = folder.with_name(f".{folder.name}.lock")
    return locks.locked(path, folder, EnvironmentSetupError, patience_s=PATIENCE_SECONDS)


def clear_away(folder: Path, *, first: str | None = None) -> None:
    """Remove a folder, its file `first` before all others. What cannot be removed is renamed, and the log names it.

    Raises EnvironmentSetupError if it cannot be renamed either.
    """
    try:
        left = make_way(folder, first=first)
    except OSError as error:
        raise EnvironmentSetupError(
            f"{folder}, which was made before, cannot be removed ({error}): end what uses it, and remove it"
        ) from error
    if left is not None:
        log.warning("%s, which was made before, cannot be removed (%s): remove it", *left)
