"""The folders of a run that one launcher alone may use: its run folder and its checkpoint folder.

`checkpoints.folder` of the config may be shared by several studies. Then two runs of the same cell have the same
checkpoint folder, although their run folders differ. The file `.lock` in it says to which run folder it belongs, and is
locked while a launcher works there. Where it is damaged, the versions say of which run they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, TypedDict

from ckptbench.checkpointing.version import MANIFEST as VERSION_MANIFEST
from ckptbench.checkpointing.version import read_version
from ckptbench.common import locks
from ckptbench.common.errors import CheckpointError, LaunchError, RunFolderError
from ckptbench.common.files import (
    json_text,
    naming,
    open_regular,
    read_shaped,
    shaped,
    sync_folders,
)
from ckptbench.common.objects import ObjectPath, Place
from ckptbench.common.own_folder import ForeignFolder, check_maker
from ckptbench.common.remedies import blame
from ckptbench.run.layout import MANIFEST
from ckptbench.run.plan import PLAN

LOCK = ".lock"
OWNER = "owner.json"
"""Name of the object that says in an object store to which run folder the versions belong."""
VERSION = f"/{VERSION_MANIFEST}"
INSTEAD = "set checkpoints.folder to another folder"


def run_folder_locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of the run folder, so that no two processes make the same run. Raises LaunchError."""
    return locks.locked(folder / LOCK, folder, LaunchError)


@contextmanager
def checkpoint_folder_locked(folder: Place, *, run_folder: Path) -> Iterator[None]:
    """Hold the lock of the checkpoint folder for the run in `run_folder`. An object store has no lock, but it says as well whose it is.

    Raises LaunchError if the folder cannot be written, if another process holds the lock, or if the folder holds
    checkpoints of another run folder. The folder is then unchanged. Else it says on stable storage whose it is.
    """
    if isinstance(folder, ObjectPath):
        _own_objects(folder, run_folder)
        yield
        return
    with _opened(folder) as file:
        locks.lock(file, folder, LaunchError, instead=INSTEAD)
        noted = locks.noted(file).get("run_folder")
        _check_owner(noted, folder, run_folder, [*folder.glob("version-*")])
        try:
            locks.note_holder(file, run_folder=str(run_folder))
            sync_folders(folder)
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield


def _own_objects(folder: ObjectPath, run_folder: Path) -> None:
    """Check whose versions lie there, and note that they are of this run from now on. Raises LaunchError."""
    try:
        found = folder.below()
        noted = None
        if OWNER in found:
            noted = shaped(folder / OWNER, (folder / OWNER).read(), _Owner)["run_folder"]
        versions = [folder / name.removesuffix(VERSION) for name in found if name.endswith(VERSION)]
        _check_owner(noted, folder, run_folder, versions)
        (folder / OWNER).write(json_text({"run_folder": str(run_folder)}).encode())
    except (CheckpointError, RunFolderError) as error:
        raise LaunchError(str(error)) from error


def _opened(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for made in (folder.parent, folder):
            check_maker(made)
        # Another user's link would have the file overwritten that it leads to.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with naming(folder / LOCK):
            return open(open_regular(folder / LOCK, flags), "r+", encoding="utf-8")
    except ForeignFolder as error:
        raise LaunchError(f"{error}: remove it, {INSTEAD}") from error
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(f"{folder} cannot be written: {blame(error, folder, INSTEAD)}")


def _check_owner(
    noted: str | None, folder: Place, run_folder: Path, versions: Sequence[Place]
) -> None:
    """Checkpoints inside the run folder are its own. Others are if the note of their owner says so, or they do themselves."""
    is_inside = isinstance(folder, Path) and folder.is_relative_to(run_folder)
    if is_inside or noted == str(run_folder):
        return
    runs = {run_id for path in versions if (run_id := _run_of_version(path))}
    theirs = set() if noted is None else runs_of(Path(noted))  # a copy of this run folder, perhaps
    if versions and not (runs and runs <= runs_of(run_folder) - theirs):
        of = "an unknown run" if noted is None else f"the run {noted}"
        raise LaunchError(
            f"{folder} holds checkpoints of {of}, and this is the run {run_folder}: {INSTEAD}, "
            "or remove them if nobody needs them"
        )


def runs_of(run_folder: Path) -> set[str]:
    """The `run_id` of the run in this folder, from both files that name it: one of them may be damaged."""
    found = set()
    for name in (MANIFEST, PLAN):
        with suppress(RunFolderError):
            found.add(read_shaped(run_folder / name, _Named)["run_id"])
    return found


def _run_of_version(folder: Place) -> str | None:
    with suppress(CheckpointError):
        return read_version(folder).identity.run_id
    return None


class _Owner(TypedDict):
    run_folder: str


class _Named(TypedDict):
    """What the manifest and the plan of a run have in common."""

    run_id: str
