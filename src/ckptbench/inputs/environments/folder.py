"""The folder of an environment: what is in it, its lock while it is made, and the removal of an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ckptbench.common import locks
from ckptbench.common.errors import EnvironmentSetupError
from ckptbench.common.files import json_text, read_json
from ckptbench.common.removal import try_to_remove

READY = "ready.json"
"""Written last: a folder without it is no environment."""
MAKES = ("lock", "sha256", "recipe", "python")
"""The fields that say which packages are in an environment. The others say how its packages were built."""
FIRST_PYTHON = "3.11"
"""That of an environment whose `ready.json` names none."""

PATIENCE_SECONDS = 15.0
"""How long to wait for a locked folder. The processes of a workflow that was killed end within a second or two."""


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of the environment's folder: a file beside it, for the folder itself is emptied."""
    path = folder.with_name(f".{folder.name}.lock")
    return locks.locked(path, folder, EnvironmentSetupError, patience_s=PATIENCE_SECONDS)


def clear_away(folder: Path, *, first: str | None = None) -> None:
    """Remove a folder, its file `first` before all others. Raises EnvironmentSetupError."""
    if error := try_to_remove(folder, first=first):
        raise EnvironmentSetupError(
            f"{folder}, which was made before, cannot be removed ({error}): end what uses it, and remove it"
        ) from error


def installed_sha256(folder: Path) -> str | None:
    """`environment_sha256` of the environment at `folder`; None where there is none. Raises RunFolderError."""
    return environment_sha256(read_json(folder / READY)) if (folder / READY).is_file() else None


def environment_sha256(ready: Mapping[str, Any]) -> str:
    """SHA-256 of what makes an environment another one, from the content of its `ready.json`."""
    content = {name: ready[name] for name in MAKES if name in ready}
    return hashlib.sha256(json_text(content).encode()).hexdigest()
