"""The versions of a run in an object store, which has no rename: the manifest is the object that makes a version.

All objects of a version are put under the version's own name. When the store lists all of them in their sizes, the manifest is
put as the last object, with every size and checksum. A version without a manifest is never taken, nor one with other objects, sizes or
bytes than its manifest has. Of a version that is removed the manifest goes first. Uploads in parts that were never completed are
invisible; a restart aborts them.

Objects have no `fsync`: a version is durable when the store has acknowledged the manifest. There is no lock either.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from ckptbench.checkpointing.store import Store, Synced, step_of
from ckptbench.checkpointing.uploads import fetched, object_checksum
from ckptbench.checkpointing.version import (
    MANIFEST,
    REFUSED_MANIFEST,
    Version,
    check_objects,
    checksums_of,
    manifest_of,
    version_name,
)
from ckptbench.common.clock import clock
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import json_text
from ckptbench.common.objects import ObjectPath
from ckptbench.common.removal import KEPT, remove_or_warn
from ckptbench.run.events import File
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position

log = logging.getLogger(__name__)

COMPLETE = {MANIFEST, REFUSED_MANIFEST}
"""A version with one of these is, or was, complete."""
_VERSION = re.compile(r"version-\d+(\.attempt-(\d+))?")


class ObjectStore(Store[ObjectPath]):
    """The versions of one run under one URL."""

    def __init__(
        self, folder: ObjectPath, *, keep: int, marks: Path, fetch_to: Path, attempt: int = 1
    ) -> None:
        """`marks`: a folder that all nodes share, for done markers. `fetch_to`: one of this node, for versions that are loaded."""
        self.folder = folder
        self._keep = keep
        self._attempt = attempt
        self._marks = marks
        self._fetch_to = fetch_to

    def ready(self) -> None:
        """Import the library, find the credentials, and open a connection. Raises CheckpointError."""
        self.folder.below()

    @property
    def recycled(self) -> ObjectPath:
        """Nothing lies there: no object is written over."""
        return self.folder / "recycled"

    def partial_folder(self, step: int) -> ObjectPath:
        return self.folder / version_name(step, self._attempt)

    def marks(self, staging: ObjectPath) -> Path:
        folder = self._marks / staging.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync_shard(self, staging: ObjectPath, files: Iterable[File]) -> None:
        """What the store has acknowledged is durable."""

    def sync(
        self,
        staging: ObjectPath,
        files: Iterable[File],
        *,
        identity: Identity,
        position: Position,
        world_size: int,
        format: str,
        attempt: int = 1,
    ) -> Synced:
        """Check that the store has every object, in its size. Read those whose checksum is not known, as where an engine wrote them."""
        written = list(files)
        check_objects(staging, written)
        synced_ns = clock()
        checked = {
            file.name: dataclasses.replace(
                file,
                checksum=file.checksum or object_checksum(staging / file.name, file.bytes),
            )
            for file in written
        }
        version = Version(
            folder=staging,
            identity=identity,
            position=position,
            world_size=world_size,
            format=format,
            attempt=attempt,
            files=checked,
        )
        return Synced(version, synced_ns)

    def commit(self, staging: ObjectPath, version: Version) -> None:
        """Put the manifest. It is durable when this returns."""
        checksums = {name: file.checksum or "" for name, file in version.files.items()}
        (staging / MANIFEST).write(json_text(manifest_of(version, checksums)).encode())
        remove_or_warn(self.marks(staging))

    def has_surplus(self) -> bool:
        """Not known without a listing, which training must not wait for."""
        return True

    def retain(self, *, recycle: bool = False) -> None:
        """What cannot be removed is left with a warning. A version that other ranks are writing by now is later than every whole one."""
        try:
            found = self._found()
            whole = _whole(found)
            of_step = {step_of(folder): folder for folder in reversed(whole)}  # the latest attempt
            kept = sorted(of_step.values(), key=_key, reverse=True)[: self._keep]
            for folder, names in found.items():
                if folder not in kept and whole and _key(folder) <= _key(whole[0]):
                    _remove(folder, names)
        except CheckpointError as error:
            log.warning("old versions stay: %s", error)

    def forget_recycled(self) -> None:
        """There is none."""

    def clear(self) -> None:
        for folder, names in self._found().items():
            _remove(folder, names)
        self._forget_unfinished()

    def keep_aside(self) -> ObjectPath | None:
        """Copies: the store does not move objects."""
        found = {folder: names for folder, names in self._found().items() if COMPLETE & {*names}}
        if not found:
            return None
        used = {name.partition("/")[0] for name in self.folder.below()}
        kept = next(f"{KEPT}{n}" for n in itertools.count(1) if f"{KEPT}{n}" not in used)
        for folder, names in found.items():
            for name in sorted(
                names, key=MANIFEST.__eq__
            ):  # as at a commit, the manifest comes last
                (folder / name).copy(self.folder / kept / folder.name / name)
            _remove(folder, names)
        return self.folder / kept

    def discard_partial(self) -> None:
        """Also what is left of uploads in parts. An error is only logged."""
        try:
            for folder, names in self._found().items():
                if not COMPLETE & {*names}:
                    log.info("%s was never committed, and is removed", folder)
                    _remove(folder, names)
            self._forget_unfinished()
        except CheckpointError as error:
            log.warning("what was never committed stays: %s", error)

    def damage_newest(self) -> ObjectPath:
        newest = self._committed_folders()[0]
        sizes = newest.below()
        largest = newest / max(sizes, key=lambda name: sizes[name])
        content = bytearray(largest.read())
        content[len(content) // 2] ^= 0xFF
        largest.write(bytes(content))
        return largest

    def set_aside(self, folder: ObjectPath) -> ObjectPath:
        """Its manifest gets another name."""
        (folder / MANIFEST).copy(folder / REFUSED_MANIFEST)
        folder.remove(MANIFEST)
        return folder / REFUSED_MANIFEST

    def fetched(self, version: Version, rank: int) -> AbstractContextManager[Path]:
        """The rank's own copy, on a disk of its node, with another check of every byte."""
        assert isinstance(version.folder, ObjectPath)
        checksums = checksums_of(version.folder)
        # A rank with a number that the version does not have begins with the running statistics of rank 0.
        files = version.read_by(rank if rank < version.world_size else 0)
        named = {file: checksums[file.name] for file in files}
        return fetched(version.folder, named, self._fetch_to)

    def _committed_folders(self) -> list[ObjectPath]:
        return _whole(self._found())

    def _found(self) -> dict[ObjectPath, dict[str, int]]:
        """The objects of every version, whole or not, with their sizes. Raises CheckpointError."""
        found: defaultdict[ObjectPath, dict[str, int]] = defaultdict(dict)
        for path, size in self.folder.below().items():
            folder, _, name = path.partition("/")
            if _VERSION.fullmatch(folder):
                found[self.folder / folder][name] = size
        return found

    def _forget_unfinished(self) -> None:
        self.folder.abort_uploads()
        for folder in self._marks.glob("version-*"):
            remove_or_warn(folder)


def _whole(found: Mapping[ObjectPath, Mapping[str, int]]) -> list[ObjectPath]:
    """Those with a manifest, newest first: of a step the latest attempt comes first."""
    return sorted(
        (each for each, names in found.items() if MANIFEST in names), key=_key, reverse=True
    )


def _key(folder: ObjectPath) -> tuple[int, int]:
    named = _VERSION.fullmatch(folder.name)
    assert named is not None
    return step_of(folder), int(named[2] or 1)


def _remove(folder: ObjectPath, names: Iterable[str]) -> None:
    """Raises CheckpointError."""
    if MANIFEST in names:
        folder.remove(MANIFEST)
    folder.remove(*(name for name in names if name != MANIFEST))
