"""Removal of what nobody needs any more. What cannot be removed is left, and the caller says so: no result depends on it."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ckptbench.common.files import fsync

log = logging.getLogger(__name__)

REMOVED = ".removed"
KEPT = "kept-"


def try_to_remove(path: Path, *, first: str | None = None) -> OSError | None:
    """Remove a folder, a file or a link. Returns the first error, which names a path, or None if all of it is gone.

    Of a folder everything goes that can go, so that one file that is in use does not hold the space of the others. The file
    `first` in it goes before all others; where it cannot, all stay.
    """
    if not os.path.isdir(path) or path.is_symlink():
        return _remove_file(path)
    errors = _remove_tree(path, first)
    if any(isinstance(error, PermissionError) for error in errors):
        with suppress(OSError):  # this user may not change modes either: the first error says it
            _allow_removal(path)
            errors = _remove_tree(path, first)
    return next(iter(errors), None)


def remove_or_warn(path: Path) -> bool:
    """Remove it as `try_to_remove` does, and return whether it is gone. A warning names what is left."""
    error = try_to_remove(path)
    if error is not None:
        log.warning("%s cannot be removed (%s): remove it", path, error)
    return error is None


def put_away(path: Path) -> Path:
    """Rename what cannot be removed, so that it is in nobody's way: to `<its name up to a dot>.<number>.removed`.

    Returns the new path. Raises OSError.
    """
    if path.name.endswith(REMOVED):
        return path
    stem = path.name.partition(".")[0]
    for number in itertools.count(1):
        away = path.with_name(f"{stem}.{number}{REMOVED}")
        if not os.path.lexists(away):
            break
    return path.rename(away)


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


def make_way(path: Path, *, first: str | None = None) -> tuple[Path, OSError] | None:
    """Remove it as `try_to_remove` does, or put it away. Returns what is left of it and why; None if nothing is.

    Raises OSError if it can neither be removed nor renamed.
    """
    error = try_to_remove(path, first=first)
    return None if error is None else (put_away(path), error)


def _remove_file(path: Path) -> OSError | None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return error
    return None


def _remove_tree(folder: Path, first: str | None) -> list[OSError]:
    """Remove all that can be removed. Returns the errors in order, each with a whole path."""
    errors: list[OSError] = []
    begins = first is not None and not os.path.isdir(folder / first)
    if begins and (error := _remove_file(folder / str(first))):
        return [error]

    def note(_: Any, path: str, found: tuple[Any, BaseException, Any]) -> None:
        error = found[1]
        if not isinstance(error, OSError):
            raise error
        if not isinstance(error, FileNotFoundError):  # another process has taken or removed it
            errors.append(OSError(error.errno, error.strerror, str(path)))

    shutil.rmtree(folder, onerror=note)
    return errors


def _allow_removal(folder: Path) -> None:
    """Let the owner list and change the folder and all folders in it. A damage may have been to their modes."""
    folder.chmod(stat.S_IRWXU)
    for parent, names, _ in os.walk(folder):  # it lists a folder only after the loop has seen it
        for name in names:
            if not (inner := Path(parent, name)).is_symlink():
                inner.chmod(stat.S_IRWXU)
