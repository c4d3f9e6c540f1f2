"""Removal of what nobody needs any more. What cannot be removed is left, and the caller says so: no result depends on it."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ckptbench.common.files import fsync

log = logging.getLogger(__name__)

KEPT = "kept-"


def try_to_remove(path: Path, *, first: str | None = None) -> OSError | None:
    """Remove a folder, with its file `first` before all others, a file or a link. Returns the first error; None if all of it is gone.

    Of a folder everything goes that can go, so that one file that is in use does not hold the space of the others.
    """
    errors: list[OSError] = []

    def note(_: Any, name: str, found: tuple[Any, BaseException, Any]) -> None:
        error = found[1]
        if not isinstance(error, OSError):
            raise error
        if not isinstance(error, FileNotFoundError):  # another process has taken or removed it
            errors.append(OSError(error.errno, error.strerror, str(name)))

    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return None
        if first is not None and not os.path.isdir(path / first):
            (path / first).unlink(missing_ok=True)
    except OSError as error:
        return error
    shutil.rmtree(path, onerror=note)
    return next(iter(errors), None)


def remove_or_warn(path: Path, *, first: str | None = None) -> bool:
    """Remove it as `try_to_remove` does, and return whether it is gone. A warning names what is left."""
    error = try_to_remove(path, first=first)
    if error is not None:
        log.warning("%s cannot be removed (%s): remove it", path, error)
    return error is None


def keep_aside(paths: Iterable[Path]) -> Path | None:
    """Move these, which lie in one folder, to a new folder `kept-<number>` in it, which nothing removes.

    Returns that folder, or None where there is nothing to move. Raises OSError.
    """
    found = [path for path in paths if os.path.lexists(path)]
    if not found:
        return None
    for number in itertools.count(1):
        kept = found[0].with_name(f"{KEPT}{number}")
        with suppress(FileExistsError):
            kept.mkdir()
            break
    for path in found:
        path.rename(kept / path.name)
    fsync(kept)
    fsync(kept.parent)
    return kept
