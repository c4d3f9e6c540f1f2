"""The store of a run's checkpoint versions: atomic commit, removal of old versions, search for the newest sound one.

`Store` is what a folder and an object store (`object_store`) have in common. In a folder, a version is written as
`version-<step>.partial`, the staging folder. `sync` puts its files and a manifest with their checksums on stable
storage; only then does `commit` rename it to `version-<step>`. So a kill at any moment leaves either the whole version
or a partial one that no reader takes. A version that was damaged after its commit is set aside as
`version-<step>.refused`; one whose step is committed again is moved away as `version-<step>.<n>.removed` first.

Of a version that is removed the manifest goes first, so no reader ever takes what is left of it. What cannot be removed, as where
another process uses it, ends no save: the log says so, and the next removal tries it again.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ckptbench.checkpointing.checksum import file_checksum
from ckptbench.checkpointing.version import (
    MANIFEST,
    Version,
    names_in,
    open_version,
    version_name,
    write_manifest,
)
from ckptbench.common.clock import clock
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import fsync
from ckptbench.common.objects import ObjectPath, Place, StoreError
from ckptbench.common.remedies import blame
from ckptbench.common.removal import KEPT, keep_aside, remove_or_warn, try_to_remove
from ckptbench.run.events import File
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position

log = logging.getLogger(__name__)

PARTIAL = ".partial"
REFUSED = ".refused"
REMOVED = ".removed"
SYNCING = 8
"""Files that are synced at the same time."""
RECYCLED = f"version-recycled{PARTIAL}"
"""Its name is that of no version, and what removes half-written versions removes it too."""


@dataclass(frozen=True, slots=True)
class Synced:
    """A version that is on stable storage in its staging folder, with its manifest."""

    version: Version
    synced_ns: int
    """When the last sync of its files returned, ns of `common.clock`. Checksums and manifest may have taken longer."""


P = TypeVar("P", Path, ObjectPath)


class Store(ABC, Generic[P]):
    """The versions of one run in one place. Every rank may write into a staging folder, but only one rank commits."""

    folder: P

    def ready(self) -> None:
        """Prepare for the saves of this rank, so that the first one takes no longer than the others."""

    @property
    @abstractmethod
    def recycled(self) -> P:
        """The folder with files of a removed version, if `retain` has left some."""

    @abstractmethod
    def partial_folder(self, step: int) -> P:
        """The place for the files of the version of `step`, which may not be there yet: see `Slot`."""

    @abstractmethod
    def marks(self, staging: P) -> Path:
        """The folder for the done markers of the version that is written to `staging`."""

    @abstractmethod
    def sync_shard(self, staging: P, files: Iterable[File]) -> None:
        """Put these files, which this rank has written, on stable storage. For a rank that does not commit."""

    @abstractmethod
    def sync(
        self,
        staging: P,
        files: Iterable[File],
        *,
        identity: Identity,
        position: Position,
        world_size: int,
        format: str,
        attempt: int = 1,
    ) -> Synced:
        """Put every file of `staging`, and all that the commit needs, on stable storage.

        Raises CheckpointError if there is another file than those, or one is missing.
        """

    @abstractmethod
    def commit(self, staging: P, version: Version) -> None:
        """Make the synced files a version, in one step."""

    @abstractmethod
    def has_surplus(self) -> bool:
        """Whether `retain` may have something to remove. It takes no time that training would notice."""

    @abstractmethod
    def retain(self, *, recycle: bool = False) -> None:
        """Remove the surplus. A kill meanwhile leaves the newest `keep` versions as they are."""

    @abstractmethod
    def forget_recycled(self) -> None:
        """Remove the folder `recycled`, when no next version will take its files."""

    @abstractmethod
    def clear(self) -> None:
        """Remove every version, also half-written and refused ones. Call it while no rank runs. Raises CheckpointError."""

    @abstractmethod
    def keep_aside(self) -> P | None:
        """Move all versions, refused ones too, to where no store reads or removes them. Call it while no rank runs.

        Returns that place, or None if there is no version. Raises CheckpointError.
        """

    @abstractmethod
    def discard_partial(self) -> None:
        """Remove the half-written versions of killed attempts. Call it while no rank writes."""

    @abstractmethod
    def damage_newest(self) -> P:
        """Change a byte in the middle of the largest file of the newest version, which must be there. Returns the file.

        For failures that are planned: a restart must notice it. Call it while no rank runs.
        """

    @abstractmethod
    def set_aside(self, folder: P) -> P:
        """Have no reader take a version that must not be read, and return what is left of it. Raises CheckpointError."""

    @abstractmethod
    def _committed_folders(self) -> list[P]:
        """Those of the committed versions, newest first."""

    def _version_folders(self) -> list[P]:
        """All that a reader looks at, newest first."""
        return self._committed_folders()

    def newest(self) -> Version | None:
        """The newest version that is complete and unchanged, after a check of every byte; None if there is none.

        Newer, damaged versions are set aside. Otherwise `retain` would count them and remove sound versions instead.
        Call it while no rank runs. Raises CheckpointError if a damaged version cannot be set aside, or an object store does not answer.
        """
        return next(self.sound(), None)

    def sound(self, *, after: int = -1) -> Iterator[Version]:
        """The versions of later steps than `after` that are complete and unchanged, newest first, as `newest` checks them.

        Each is checked, and a damaged one set aside, when its turn comes.
        """
        refused = 0
        for folder in self._version_folders():
            if step_of(folder) <= after:
                return
            try:
                version = open_version(folder)
            except StoreError:
                raise  # the version may be sound
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
        return [step_of(folder) for folder in self._committed_folders()]

    def versions(self) -> list[Version]:
        """Every version, oldest first, after a check of every byte. Call it while none is written or removed.

        Raises CheckpointError if one is damaged.
        """
        return [open_version(folder) for folder in reversed(self._committed_folders())]


class CheckpointStore(Store[Path]):
    """The versions of one run in one folder."""

    def __init__(self, folder: Path, *, keep: int, attempt: int = 1) -> None:
        """From attempt 2 on the attempt is part of the staging folder's name: files of an earlier attempt may be left under the plain name."""
        self.folder = folder
        self._attempt = attempt
        self._keep = keep

    @property
    def recycled(self) -> Path:
        """The folder with files of a removed version, if `retain` has left some."""
        return self.folder / RECYCLED

    def partial_folder(self, step: int) -> Path:
        attempt = "" if self._attempt == 1 else f".attempt-{self._attempt}"
        return self.folder / f"{version_name(step)}{attempt}{PARTIAL}"

    def sync(
        self,
        staging: Path,
        files: Iterable[File],
        *,
        identity: Identity,
        position: Position,
        world_size: int,
        format: str,
        attempt: int = 1,
    ) -> Synced:
        """Put every file of `staging` and the manifest on stable storage, at the same time.

        A second thread computes the checksums that the files do not have, and writes the manifest. Raises CheckpointError if
        the folder has another file than those, or lacks one.
        """
        version = Version(
            folder=self.folder / version_name(position.step),
            identity=identity,
            position=position,
            world_size=world_size,
            format=format,
            attempt=attempt,
            files={file.name: file for file in files},
        )
        names = names_in(staging)
        _check_names(staging, set(names), version.files.keys())
        folders = {parent for name in names for parent in Path(name).parents} - {Path()}
        with ThreadPoolExecutor(1) as pool:
            described = pool.submit(_write_synced_manifest, staging, version)
            _sync_all([*(staging / name for name in names), *(staging / each for each in folders)])
            synced_ns = clock()
        described.result()
        return Synced(version, synced_ns)

    def commit(self, staging: Path, version: Version) -> None:
        """Give the synced folder the name of its version, and sync the folder in which it lies."""
        folder = self.folder / version_name(version.position.step)
        if os.path.lexists(folder):
            # The run wrote this step before it went back to an older one, or is stopped at it. `retain` removes that version;
            # after a kill between the two renames `sound` puts it back.
            folder.rename(_free_name(folder))
        staging.rename(folder)
        fsync(self.folder)

    def sound(self, *, after: int = -1) -> Iterator[Version]:
        """As in `Store`. A version whose replacement a kill has cut off in the middle of `commit` is put back first."""
        for replaced in self._entries(REMOVED):
            folder = self.folder / version_name(step_of(replaced))
            if _has_manifest(replaced) and not os.path.lexists(folder):
                _put_back(replaced, folder)
        return super().sound(after=after)

    def marks(self, staging: Path) -> Path:
        return staging

    def sync_shard(self, staging: Path, files: Iterable[File]) -> None:
        """Another node cannot sync bytes that are still in this node's memory."""
        for file in files:
            fsync(staging / file.name)

    def has_surplus(self) -> bool:
        return bool(self.surplus())

    def surplus(self) -> list[Path]:
        """The folders to remove: versions older than the newest `keep`, leftovers of removals, refused versions.

        Empty, with a warning, if the folder cannot be listed.
        """
        try:
            found = self._entries()
        except CheckpointError as error:
            log.warning("%s: old versions stay", error)
            return []
        versions = _versions_in(found)
        whole = [path for path in versions if _has_manifest(path)]
        halves = [path for path in versions if path not in whole]
        aside = [path for path in found if path.suffix in (REFUSED, REMOVED)]
        return [*whole[self._keep :], *halves, *aside]

    def retain(self, *, recycle: bool = False) -> None:
        """Remove the surplus. A kill meanwhile leaves the newest `keep` versions as they are.

        With `recycle` the files of one removed version go to the folder `recycled`, where the ranks take them for the next one:
        to write over blocks that were written before is faster. Whatever is left there from before is removed.
        What cannot be removed is left with a warning: a removal may never end a save that went well.
        """
        surplus = self.surplus()
        if recycle and surplus and _has_manifest(surplus[0]):
            self.forget_recycled()  # a rank may take a file at the same time
            with suppress(OSError):  # it is removed below
                surplus[0].rename(self.recycled)
                surplus.pop(0)
        for folder in surplus:
            remove_or_warn(folder, first=MANIFEST)

    def forget_recycled(self) -> None:
        """Remove the folder `recycled`, when no next version will take its files."""
        remove_or_warn(self.recycled)

    def clear(self) -> None:
        """Remove every version, also half-written and refused ones. Call it while no rank runs. Raises CheckpointError."""
        for folder in self._entries():
            _remove(folder)
        if (
            self.folder.exists()
        ):  # else a power cut could bring back what the next run must not find
            fsync(self.folder)

    def keep_aside(self) -> Path | None:
        """Move all versions, refused ones too, to a folder that no store reads or removes. Call it while no rank runs.

        Returns that folder, or None if there is no version. Raises CheckpointError.
        """
        try:
            return keep_aside([*self._committed_folders(), *self._entries(REFUSED)])
        except OSError as error:
            raise CheckpointError(
                f"the versions in {self.folder} cannot be set aside: {blame(error, self.folder, 'move them elsewhere')}"
            ) from error

    @property
    def keeps_aside(self) -> bool:
        """Whether versions were set aside that nobody has removed since."""
        return any(self.folder.glob(f"{KEPT}*"))

    def forget_after(self, step: int) -> None:
        """Remove the versions of later steps, which training will write anew. Call it while no rank writes. Raises CheckpointError."""
        for folder in self._version_folders():
            if step_of(folder) > step:
                _remove(folder)

    def discard_partial(self) -> None:
        """Remove the half-written versions of killed attempts. Call it while no rank writes."""
        for folder in self._entries(PARTIAL):
            log.info("%s was never committed, and is removed", folder)
            remove_or_warn(folder)

    def damage_newest(self) -> Path:
        """Change a byte in the middle of the largest file of the newest version, which must be there. Returns the file.

        For failures that are planned: a restart must notice it. Call it while no rank runs.
        """
        files = [path for path in self._committed_folders()[0].rglob("*") if path.is_file()]
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
            if error := try_to_remove(aside):
                raise error
            return folder.rename(aside)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {folder} is damaged and cannot be set aside: {blame(error, folder, 'remove it')}"
            ) from error

    def _committed_folders(self) -> list[Path]:
        """Folders of the committed versions, newest first."""
        return [path for path in self._version_folders() if _has_manifest(path)]

    def _version_folders(self) -> list[Path]:
        """All version folders, newest first, with or without a manifest."""
        return _versions_in(self._entries())

    def _entries(self, suffix: str = "") -> list[Path]:
        """All that is named like a version and ends with `suffix`. Raises CheckpointError."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"{self.folder}: the checkpoints cannot be listed: {blame(error, self.folder, reading=True)}"
            ) from error
        fitting = (name for name in names if name.startswith("version-") and name.endswith(suffix))
        return [self.folder / name for name in sorted(fitting)]


def _remove(folder: Path) -> None:
    """Raises CheckpointError."""
    if error := try_to_remove(folder, first=MANIFEST):
        raise CheckpointError(
            f"{folder} of an earlier run cannot be removed: {blame(error, folder, 'remove it')}"
        ) from error


def _put_back(replaced: Path, folder: Path) -> None:
    """Raises CheckpointError."""
    try:
        replaced.rename(folder)
    except FileNotFoundError:
        return  # another process has put it back
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {replaced} is whole and cannot be put back: {blame(error, folder, f'rename it to {folder.name}')}"
        ) from error


def _free_name(folder: Path) -> Path:
    """A name that no reader takes and nothing has."""
    names = (folder.with_name(f"{folder.name}.{n}{REMOVED}") for n in itertools.count(1))
    return next(path for path in names if not os.path.lexists(path))


def _check_names(staging: Path, found: Set[str], named: Set[str]) -> None:
    if lacking := named - found:
        raise CheckpointError(
            f"{staging / min(lacking)} is not there, though the strategy named it"
        )
    if unknown := found - named:
        raise CheckpointError(
            f"{staging / min(unknown)} belongs to no rank's shard of the version: the strategy did not name it"
        )


def _write_synced_manifest(staging: Path, version: Version) -> None:
    checksums = {
        name: file.checksum or file_checksum(staging / name) for name, file in version.files.items()
    }
    write_manifest(staging, version, checksums)
    _sync_all((staging / MANIFEST, staging))


def _versions_in(found: Iterable[Path]) -> list[Path]:
    """Those that are named like a committed version, newest first."""
    versions = (path for path in found if re.fullmatch(r"version-\d+", path.name))
    return sorted(versions, key=step_of, reverse=True)


def step_of(folder: Place) -> int:
    """The step in the name of a version."""
    return int(folder.name.partition(".")[0].split("-")[1])


def _has_manifest(folder: Path) -> bool:
    return os.path.lexists(folder / MANIFEST)


def held_bytes(folder: Path) -> int:
    """Bytes of all versions and partial versions. Leftovers of removed versions do not count."""
    versions = folder.glob("version-*")
    go = (path for path in versions if path.suffix in (PARTIAL, REFUSED) or _has_manifest(path))
    return sum(map(_bytes_in, go))


def _bytes_in(folder: Path) -> int:
    """Size of all below the folder. Files that vanish or cannot be read count as 0."""
    found = 0
    for parent, folders, files in os.walk(folder):  # it leaves out what it cannot list
        for name in (*folders, *files):
            with suppress(OSError):
                found += os.lstat(os.path.join(parent, name)).st_size
    return found


def _sync_all(paths: Iterable[Path]) -> None:
    """Sync them at the same time: a file system with a journal then writes it once for several of them."""
    with ThreadPoolExecutor(SYNCING) as pool:
        list(pool.map(fsync, paths))  # raises the first error
