"""What an earlier attempt at an environment, or at a wheel for it, has left."""

from __future__ import annotations

import logging
from pathlib import Path

from ckptbench.errors import EnvironmentSetupError
from ckptbench.machine.removal import make_way

log = logging.getLogger("ckptbench")


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
