"""The user of this machine, who may have neither a name nor a home folder: in a container, say."""

from __future__ import annotations

import os
import pwd
from collections.abc import MutableMapping
from pathlib import Path

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Variables that Python's getpass reads, before the list of users."""


def supply_user(environment: MutableMapping[str, str], caches: Path) -> None:
    """Set in `environment` what libraries take for granted, unless it is there.

    `USER` is the number of a user without a name. Where the folder of caches cannot be written, it is `caches`.
    """
    if not any(environment.get(name) for name in NAMES) and not _has_name():
        environment["USER"] = str(os.getuid())
    home = environment.get("HOME", "")
    if not _can_be_made(Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache"))):
        environment["XDG_CACHE_HOME"] = str(caches.absolute())
    # matplotlib looks for its settings, too, in a folder that it makes.
    settings = Path(environment.get("XDG_CONFIG_HOME") or Path(home, ".config"))
    if not environment.get("MPLCONFIGDIR") and not _can_be_made(settings):
        environment["MPLCONFIGDIR"] = str(caches.absolute() / "matplotlib")


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _can_be_made(folder: Path) -> bool:
    """Whether the folder is there and can be written, after an attempt to make it."""
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)
