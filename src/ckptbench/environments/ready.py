"""`ready.json`: what an environment was made from, and whether it would be made from the same now."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptbench.environments.horovod import RECIPE
from ckptbench.environments.lock_file import pinned, pinned_sha256
from ckptbench.errors import RunFolderError
from ckptbench.machine.files import file_sha256, json_text, read_json

READY = "ready.json"
"""Written last: a folder without it is no environment."""
CONSTRAINTS = "constraints"
MAKES = ("lock", "sha256", "recipe")
"""The fields that say which packages are in an environment. The others say how its packages were built."""


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


def installed_sha256(folder: Path) -> str | None:
    """`environment_sha256` of the environment at `folder`; None where there is none. Raises RunFolderError."""
    return environment_sha256(read_json(folder / READY)) if (folder / READY).is_file() else None


def environment_sha256(ready: Mapping[str, Any]) -> str:
    """SHA-256 of what makes an environment another one, from the content of its `ready.json`."""
    content = {name: ready[name] for name in MAKES if name in ready}
    return hashlib.sha256(json_text(content).encode()).hexdigest()
