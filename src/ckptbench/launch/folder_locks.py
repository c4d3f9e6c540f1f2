"""The folders of a run that one launcher alone may use: its run folder and its checkpoint folder.

`checkpoints.folder` of the config may be shared by several studies. Then two runs of the same cell have the same
checkpoint folder, although their run folders differ. The file `.lock` in it says to which run folder it belongs, and is
locked while a launcher works there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

from ckptbench.common import locks
from ckptbench.common.errors import LaunchError
from ckptbench.common.own_folder import ForeignFolder, check_maker
from ckptbench.common.remedies import blame

LOCK = ".lock"
INSTEAD = "set checkpoints.folder to another folder"


def run_folder_locked(folder: Path, *, patience_s: float = 0.0) -> AbstractContextManager[None]:
    """Hold the lock of the run folder, so that no two processes make the same run. Raises LaunchError."""
    return locks.locked(folder / LOCK, folder, LaunchError, patience_s=patience_s)


@contextmanager
def checkpoint_folder_locked(folder: Path, *, run_folder: Path) -> Iterator[None]:
    """Hold the lock of the checkpoint folder for the run in `run_folder`.

    Raises LaunchError if the folder cannot be written, if another process holds the lock, or if the folder holds
    checkpoints of another run folder. The folder is then unchanged.
    """
    with _opened(folder) as file:
        locks.lock(file, folder, LaunchError, instead=INSTEAD)
        _check_owner(locks.noted(file), folder, run_folder)
        try:
            locks.note_holder(file, run_folder=str(run_folder))
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield


def _opened(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for made in (folder.parent, folder):
            check_maker(made)
        # Another user's link would have the file overwritten that it leads to.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return open(os.open(folder / LOCK, flags, 0o644), "r+", encoding="utf-8")
    except ForeignFolder as error:
        raise LaunchError(f"{error}: have it removed, {INSTEAD}") from error
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(f"{folder} cannot be written: {blame(error, folder, INSTEAD)}")


def _check_owner(owner: dict[str, Any], folder: Path, run_folder: Path) -> None:
    """Checkpoints inside the run folder are its own. Others are if the lock file says so."""
    if folder.is_relative_to(run_folder) or owner.get("run_folder") == str(run_folder):
        return
    if any(folder.glob("version-*")):
        of = f"the run {owner['run_folder']}" if "run_folder" in owner else "an unknown run"
        raise LaunchError(
            f"{folder} holds checkpoints of {of}, and this is the run {run_folder}: remove them if nobody needs them, "
            f"or {INSTEAD}"
        )
