"""`ready.json`: what an environment was made from, and whether it would be made from the same now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import file_sha256, read_json
from ckptbench.environments.folder import READY
from ckptbench.environments.horovod import RECIPE
from ckptbench.environments.lock_file import pinned, pinned_sha256

CONSTRAINTS = "constraints"


def described(lock: Path, constraints: Path) -> dict[str, Any]:
    """What an environment that is made now would have as its `ready.json`."""
    ready = {"lock": lock.name, "sha256": pinned_sha256(lock)}
    if re.search(r"^horovod==", pinned(lock), re.MULTILINE):
        ready["recipe"] = RECIPE.revision
    return {**ready, CONSTRAINTS: file_sha256(constraints)}


def changes(folder: Path, wanted: Mapping[str, Any]) -> list[str]:
    """The fields in which the environment at `folder` differs from `wanted`. Empty too where there is none."""
    try:
        ready = read_json(folder / READY)
    except RunFolderError:
        return [READY] if (folder / READY).exists() else []
    # Environments of older versions do not say what they were built with.
    ready.setdefault(CONSTRAINTS, wanted[CONSTRAINTS])
    return [name for name, value in wanted.items() if ready.get(name) != value]
