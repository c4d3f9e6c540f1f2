"""The store of a run's checkpoint versions: atomic commit, removal of old versions, search for the newest sound one.

A version is written as `version-<step>.partial`. Only after all its files and the folder are on stable storage is it
renamed to `version-<step>`. So a kill at any moment leaves either the whole version or a partial one that no reader
takes. A version that was damaged after its commit is set aside as `version-<step>.refused`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ckptbench.checkpoints.checksum import file_checksum
from ckptbench.checkpoints.version import (
    MANIFEST,
    Checksums,
    Version,
    names_in,
    open_version,
    version_name,
    write_manifest,
)
from ckptbench.errors import CheckpointError
from ckptbench.machine.clock import clock
from ckptbench.runs.events import File
from ckptbench.runs.identity import Identity
from ckptbench.runs.position import Position

log = logging.getLogger(__name__)

PARTIAL = ".partial"
REFUSED = ".refused"
SYNCING = 8
"""Files that are synced at the same time."""
SPARE = f"version-spare{PARTIAL}"
"""Its name is that of no version, and what removes half-written versions removes it too."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The files of a version, which are on stable storage."""

    checksums: Checksums
    synced_ns: int
    """When the last sync returned, ns of `machine.clock`. The checksums may have taken longer."""


class CheckpointStore:
    """The versions of one run in one folder. Every rank may write into `staging`, but only one rank commits."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    @property
    def spare(self) -> Path:
        """The folder with files of a removed version, if `retain` has left some."""
        return self.folder / SPARE

    def staging(self, step: int) -> Path:
        """The folder for the files of the version of `step`. The first rank that asks creates it."""
        folder = self.folder / (version_name(step) + PARTIAL)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync(self, staging: Path, known: dict[str, str]) -> Synced:
        """Put every file and sub-folder of `staging` on stable storage. `commit` syncs `staging` itself.

        A second thread computes the checksums that are not known.
        """
        names = names_in(staging)
        with ThreadPoolExecutor(1) as pool:
            computed = {
                name: pool.submit(file_checksum, staging / name)
                for name in names
                if name not in known
            }
            folders = {parent for name in names for parent in Path(name).parents} - {Path()}
            _sync_all([*(staging / name for name in names), *(staging / each for each in folders)])
            synced_ns = clock()
        found = {name: checksum.result() for name, checksum in computed.items()}
        checksums = known | found
        return Synced({name: checksums[name] for name in names}, synced_ns)

    def commit(
        self,
        staging: Path,
        files: Iterable[File],
        checksums: Checksums,
        *,
        identity: Identity,
        position: Position,
        world_size: int,
        format: str,
        attempt: int = 1,
    ) -> Version:
        """Turn the synced files into a version: write the manifest, sync the folder, rename it, sync its parent.

        Raises CheckpointError if the folder has a file that is not in `files`.
        """
        final = self.folder / version_name(position.step)
        version = Version(
            folder=final,
            identity=identity,
            position=position,
            world_size=world_size,
            format=format,
            attempt=attempt,
            files={file.name: file for file in files},
        )
        if lacking := version.files.keys() - checksums.keys():
            raise CheckpointError(
                f"{staging / min(lacking)} is not there, though the strategy named it"
            )
        if unknown := checksums.keys() - version.files.keys():
            raise CheckpointError(
                f"{staging / min(unknown)} belongs to no rank's share of the version: the strategy did not name it"
            )
        write_manifest(staging, version, checksums)
        _sync_all((staging / MANIFEST, staging))
        if final.exists():  # the run wrote this step before it resumed from an older version
            _remove(final)
        staging.rename(final)
        fsync(self.folder)
        return version

    def surplus(self) -> list[Path]:
        """All versions except the newest `keep`, and all refused ones, which a newer version has replaced."""
        return [*self._folders()[self._keep :], *self.folder.glob(f"version-*{REFUSED}")]

    def retain(self, *, spare: bool = False) -> None:
        """Remove the surplus. A kill meanwhile leaves the newest `keep` versions as they are.

        With `spare` the files of one removed version go to the folder `spare`, where the ranks take them for the next one:
        to write over blocks that were written before is faster. Whatever is left there from before is removed.
        A refused one that cannot be removed is left, and the log says so: it may never end a save that went well.
        """
        surplus = self.surplus()
        if spare and surplus and not surplus[0].name.endswith(REFUSED):
            if self.spare.exists():
                shutil.rmtree(
                    self.spare, ignore_errors=True
                )  # a rank may take a file at the same time
            surplus.pop(0).rename(self.spare)
        for folder in surplus:
            try:
                _remove(folder)
            except OSError as error:
                if not folder.name.endswith(REFUSED):
                    raise
                log.warning("%s cannot be removed (%s): remove it", folder, error)

    def forget_spare(self) -> None:
        """Remove the folder `spare`, when no next version will take its files. Raises OSError."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.spare)

    def clear(self) -> None:
        """Remove every version, also half-written and refused ones. Call it while no rank runs.

        Raises CheckpointError if one cannot be removed.
        """
        for folder in list(self.folder.glob("version-*")):
            try:
                _remove(folder)
            except OSError as error:
                raise CheckpointError(
                    f"{folder} of an earlier run cannot be removed ({error}): remove it"
                ) from error

    def forget_after(self, step: int) -> None:
        """Remove the versions of later steps, which training will write anew. Call it while no rank writes."""
        for folder in self._folders():
            if _step_of(folder) > step:
                _remove(folder)

    def discard_partial(self) -> None:
        """Remove the half-written versions of killed attempts. Call it while no rank runs."""
        for folder in self.folder.glob(f"version-*{PARTIAL}"):
            log.info("%s was never committed: removed", folder)
            _remove(folder)

    def newest(self) -> Version | None:
        """The newest version that is complete and unchanged, after a check of every byte; None if there is none.

        Newer, damaged versions are set aside. Otherwise `retain` would count them and remove sound versions instead.
        Call it while no rank runs. Raises CheckpointError if a damaged version cannot be set aside.
        """
        return next(self.sound(), None)

    def sound(self, *, after: int = -1) -> Iterator[Version]:
        """The versions of later steps than `after` that are complete and unchanged, newest first, as `newest` checks them.

        Each is checked, and a damaged one set aside, when its turn comes.
        """
        refused = 0
        for folder in self._folders():
            if _step_of(folder) <= after:
                return
            try:
                version = open_version(folder)
            except CheckpointError as error:
                log.warning("%s; set aside as %s", error, self.set_aside(folder).name)
                refused += 1
            else:
                if refused:
                    log.warning("%s is sound, and taken instead", folder)
                refused = 0
                yield version
        if refused:
            log.warning("%s holds no sound version", self.folder)

    def steps(self) -> list[int]:
        """Steps of the committed versions, sound or not, newest first."""
        return [_step_of(folder) for folder in self._folders()]

    def versions(self) -> list[Version]:
        """Every version, oldest first, after a check of every byte. Call it while none is written or removed.

        Raises CheckpointError if one is damaged.
        """
        return [open_version(folder) for folder in reversed(self._folders())]

    def damage_newest(self) -> Path:
        """Change a byte in the middle of the largest file of the newest version, which must be there. Returns the file.

        For failures that are planned: a restart must notice it. Call it while no rank runs.
        """
        files = [path for path in self._folders()[0].rglob("*") if path.is_file()]
        largest = max(files, key=lambda path: path.stat().st_size)
        with largest.open("r+b") as file:
            file.seek(largest.stat().st_size // 2)
            (byte,) = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0xFF]))
            file.flush()
            os.fsync(file.fileno())
        return largest

    def set_aside(self, folder: Path) -> Path:
        """Rename a version that must not be read, and return its new path. Raises CheckpointError."""
        aside = folder.with_name(folder.name + REFUSED)
        try:
            if os.path.lexists(aside):
                _remove(aside)
            return folder.rename(aside)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {folder} is damaged and cannot be set aside ({error}): remove it"
            ) from error

    def _folders(self) -> list[Path]:
        """Folders of the committed versions, newest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"the checkpoints cannot be listed: {error}") from error
        versions = (self.folder / name for name in names if re.fullmatch(r"version-\d+", name))
        return sorted(versions, key=_step_of, reverse=True)


def _step_of(folder: Path) -> int:
    return int(folder.name.split("-")[1])


def _remove(path: Path) -> None:
    """Remove a folder, a file or a link. The damage to a version may have put a file or a link in its place."""
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        _allow_removal(path)
        shutil.rmtree(path)


def _allow_removal(folder: Path) -> None:
    """Let the owner list and change the folder and all folders in it. The damage may have been to their modes."""
    folder.chmod(stat.S_IRWXU)
    for parent, names, _ in os.walk(folder):  # it lists a folder only after the loop has seen it
        for name in names:
            if not (inner := Path(parent, name)).is_symlink():
                inner.chmod(stat.S_IRWXU)


def _sync_all(paths: Iterable[Path]) -> None:
    """Sync them at the same time: a file system with a journal then writes it once for several of them."""
    with ThreadPoolExecutor(SYNCING) as pool:
        list(pool.map(fsync, paths))  # raises the first error


def fsync(path: Path) -> None:
    """Put the bytes of a file, or the entries of a folder, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
