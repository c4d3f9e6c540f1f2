"""The lock and the owner of a run's checkpoint folder.

`checkpoints.folder` of the config may be shared by several studies. Then two runs of the same cell have the same
checkpoint folder, although their run folders differ. The file `.lock` in it says to which run folder it belongs, and is
locked while a launcher works there.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ckptbench.errors import LaunchError
from ckptbench.machine.locks import lock_at_once
from ckptbench.machine.own_folder import ForeignFolder, check_maker
from ckptbench.remedies import blame

log = logging.getLogger(__name__)

LOCK = ".lock"
ANOTHER = "set checkpoints.folder to another folder"


@contextmanager
def held(folder: Path, *, run_folder: Path) -> Iterator[None]:
    """Lock the checkpoint folder for the run in `run_folder`. The kernel releases the lock when this process ends.

    Raises LaunchError if the folder cannot be written, if another process holds the lock, or if the folder holds
    checkpoints of another run folder. The folder is then unchanged.
    """
    with _opened(folder) as file:
        _lock(file, folder)
        _check_owner(_content(file), folder, run_folder)
        _note_owner(file, folder, run_folder)
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
        raise LaunchError(f"{error}: have it removed, {ANOTHER}") from error
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            path = next(path for path in (folder, *folder.parents) if path.exists())
            raise LaunchError(f"{path} is no folder: remove it, or {ANOTHER}") from error
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(f"{folder} cannot be written: {blame(error, folder, ANOTHER)}")


def _lock(file: IO[str], folder: Path) -> None:
    try:
        lacking = lock_at_once(file)
    except BlockingIOError as error:
        holder = _content(file)
        raise LaunchError(
            f"{folder} is in use by process {holder.get('pid', '?')} on {holder.get('host', '?')}, which makes the run "
            f"{holder.get('run_folder', '?')}: wait for it, end that process, or {ANOTHER}"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    if lacking is not None:
        log.warning(
            "%s is on a file system without locks (%s): let no other study use it at the same time",
            folder,
            lacking,
        )


def _content(file: IO[str]) -> dict[str, Any]:
    """What the lock file says. Empty for a new file, and for one that a full disk has cut short."""
    file.seek(0)
    try:
        content = json.loads(file.read())
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _check_owner(owner: dict[str, Any], folder: Path, run_folder: Path) -> None:
    """Checkpoints inside the run folder are its own. Others are if the lock file says so."""
    if folder.is_relative_to(run_folder) or owner.get("run_folder") == str(run_folder):
        return
    if any(folder.glob("version-*")):
        of = f"the run {owner['run_folder']}" if "run_folder" in owner else "an unknown run"
        raise LaunchError(
            f"{folder} holds checkpoints of {of}, and this is the run {run_folder}: remove them if nobody needs them, "
            f"or {ANOTHER}"
        )


def _note_owner(file: IO[str], folder: Path, run_folder: Path) -> None:
    note = {"run_folder": str(run_folder), "host": socket.gethostname(), "pid": os.getpid()}
    try:
        file.seek(0)
        file.truncate()
        file.write(json.dumps(note) + "\n")
        file.flush()
    except OSError as error:
        raise _unwritable(folder, error) from error
