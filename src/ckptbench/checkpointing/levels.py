"""The stores of a run, one for each level that its strategy writes to."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ckptbench.checkpointing.object_store import ObjectStore
from ckptbench.checkpointing.store import CheckpointStore, Store
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.common.objects import UNANSWERED, ObjectPath, Place
from ckptbench.common.own_folder import ForeignFolder, make_own
from ckptbench.common.remedies import blame, free, number_of, remedy
from ckptbench.common.removal import remove_or_warn
from ckptbench.matrix.levels import MEMORY, NODE, SETTINGS, SHARED, levels_of
from ckptbench.run.plan import Plan

log = logging.getLogger(__name__)

KEPT_LOCAL = 1
"""Versions kept at every level but the shared one. They serve restarts alone, and memory is dear."""
KEPT_SPREAD = 2
"""Local versions kept if ranks are on several nodes. Nodes commit separately, so one may be a version ahead: with two
kept, a common step always remains. None can be further ahead, as the ranks meet before each save (`manager`)."""


class Levels:
    """The versions of one run at all levels."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        *,
        keep: int,
        keep_local: int = KEPT_LOCAL,
        attempt: int = 1,
        shared: ObjectStore | None = None,
    ) -> None:
        """`folders` by level, the nearest first. `keep` versions stay in the shared one, and `keep_local` in each of the others.
        `attempt` is that of the run which writes. `shared`: the shared level, which has no folder then."""
        self.local = {
            level: CheckpointStore(folder, keep=keep_local, attempt=attempt)
            for level, folder in folders.items()
            if level != SHARED
        }
        """Those that belong to a node, the nearest first."""
        self.shared: Store[Any] = shared or CheckpointStore(
            folders[SHARED], keep=keep, attempt=attempt
        )

    @property
    def stores(self) -> dict[str, Store[Any]]:
        """All of them, the nearest first."""
        return {**self.local, SHARED: self.shared}

    def shared_alone(self) -> Levels:
        """The same without the local tiers."""
        alone = copy.copy(self)
        alone.local = {}
        return alone

    def fetched(self, version: Version, rank: int) -> AbstractContextManager[Path]:
        """A folder with the files that this rank loads of a version, while it does. Files are read where they lie, objects are fetched."""
        if isinstance(version.folder, Path):
            return nullcontext(version.folder)
        assert isinstance(self.shared, ObjectStore)
        return self.shared.fetched(version, rank)

    def make(self) -> None:
        """Make the folders of the local tiers, for this user alone. Call it before anything in them is changed.

        Raises CheckpointError if one cannot be made, or if another user has made it, or a link in its place.
        """
        for level, store in self.local.items():
            own = store.folder.parent
            try:
                make_own(own.parent, own.name, store.folder.name)
            except ForeignFolder as error:
                raise CheckpointError(f"{error}: remove it, {elsewhere(level)}") from error
            except OSError as error:
                why = blame(error, store.folder, elsewhere(level))
                raise CheckpointError(f"{store.folder} cannot be made: {why}") from error

    def begin_local(self, step: int) -> None:
        """Make the local tiers ready for an attempt that goes on after `step` (0: from the beginning).

        What it will write anew is removed: it would be taken for newer than what this attempt writes before it. Call it
        on one rank of a node, while none writes. Raises CheckpointError.
        """
        self.make()
        for store in self.local.values():
            store.discard_partial()
            store.forget_after(step)

    def newest(self) -> Version | None:
        """The newest version that is complete and unchanged, from the nearest level that has it; None if there is none.

        Newer, damaged versions are set aside. Call it while no rank runs. Raises CheckpointError if one cannot be.
        """
        while stores := [store for store in self.stores.values() if store.steps()]:
            # max takes the first of equals: the nearest.
            store = max(stores, key=lambda store: store.steps()[0])
            step = store.steps()[0]
            version = store.newest()
            if version is not None and version.position.step == step:
                return version
        return None

    def damage_newest(self) -> Place | None:
        """Damage the newest version at the nearest level that has it, as `CheckpointStore.damage_newest` does.

        Returns the damaged file, or None if there is no version.
        """
        stores = [store for store in self.stores.values() if store.steps()]
        if not stores:
            return None
        damaged: Place = max(stores, key=lambda store: store.steps()[0]).damage_newest()
        return damaged

    def keep_aside(self) -> None:
        """Move the versions of all levels to where nothing reads or removes them. Call it while no rank runs. Raises CheckpointError."""
        for store in self.stores.values():
            if kept := store.keep_aside():
                log.warning(
                    "the versions that lay in %s are kept in %s: remove it if nobody needs them",
                    store.folder,
                    kept,
                )

    def discard_partial(self) -> None:
        """Remove what killed attempts have left of versions. Call it while no rank writes, and after `make`."""
        for store in self.stores.values():
            store.discard_partial()

    def clear(self) -> None:
        """Remove every version. Call it while no rank runs, and after `make`. Raises CheckpointError if one cannot even be renamed."""
        for store in self.stores.values():
            store.clear()

    def forget_local(self) -> None:
        """Remove the local tiers of a run that has ended, but for versions that were set aside. An error is only logged."""
        for store in self.local.values():
            for path in store.folder.glob("version-*") if store.keeps_aside else [store.folder]:
                remove_or_warn(path)


def open_levels(plan: Plan, *, node: str | None = None, keep: int | None = None) -> Levels:
    """The stores of a run. The shared one is always among them: what is left of an earlier run may lie there.

    `keep` versions stay at the shared level. None: as many as the config says.
    `node` is the name of this node if the ranks are on several; the local tiers then are those of its part of the run.
    None: all ranks are on one node.
    """
    bases = {MEMORY: plan.memory_folder, NODE: plan.node_folder}
    folders = {
        level: _local_folder(base, level, plan.run_folder, node)
        for level in levels_of(plan.cell.strategy)
        if (base := bases.get(level)) is not None
    }
    keep = plan.training.keep_during_run if keep is None else keep
    keep_local = KEPT_LOCAL if node is None else KEPT_SPREAD
    if isinstance(plan.checkpoint_folder, Path):
        folders[SHARED] = plan.checkpoint_folder
        return Levels(folders, keep=keep, keep_local=keep_local, attempt=plan.attempt)
    shared = ObjectStore(
        plan.checkpoint_folder,
        keep=keep,
        attempt=plan.attempt,
        marks=plan.run_folder / "checkpoints",
        fetch_to=plan.node_folder or Path(tempfile.gettempdir()),
    )
    return Levels(folders, keep=keep, keep_local=keep_local, attempt=plan.attempt, shared=shared)


def local_folders(plan: Plan, *, node: str | None) -> list[Path]:
    """The folders of the run's local tiers, which are lost with their node."""
    return [store.folder for store in open_levels(plan, node=node).local.values()]


def has_local(plan: Plan) -> bool:
    """Whether the run's strategy writes to levels that belong to a node."""
    return bool(open_levels(plan).local)


def _local_folder(base: Path, level: str, run_folder: Path, node: str | None) -> Path:
    """The folder of one run's level below `base`, which all users of the node may share.

    Its digest has the name of the node: the nodes of an emulated cluster are one machine. It names the level, so that
    two levels never share a folder, whatever their bases are.
    """
    named = os.fsencode(run_folder) + (b"" if node is None else b"\0" + os.fsencode(node))
    digest = hashlib.sha256(named).hexdigest()[:8]
    return base / f"ckptbench-{os.getuid()}" / f"{run_folder.name}-{digest}-{level}"


def failed_save(
    step: int, error: Exception, level: str | None, folders: Mapping[str, Place]
) -> CheckpointError:
    """The error of the checkpoint of `step` in one line. `folders` are those of the levels that the save goes to.

    Without a `level` it names them all, and as remedy that of the only one, if it is.
    """
    said = " ".join(f"{type(error).__name__}: {error}".split())
    where = " or ".join(str(folders[each]) for each in ([level] if level else folders))
    at = f", the level {level}," if level and len(folders) > 1 else ""
    known = level or (next(iter(folders)) if len(folders) == 1 else None)
    remedy = None if known is None else _remedy(error, known, folders[known])
    return CheckpointError(
        f"the checkpoint of step {step} cannot be written to {where}{at} ({said})"
        + (f"; {remedy}" if remedy else "")
    )


def _remedy(error: Exception, level: str, folder: Place) -> str | None:
    """What to do about it. None: the error says so itself, or nothing is known of it."""
    if isinstance(folder, ObjectPath):
        return None if isinstance(error, CheckpointError | MemoryError) else UNANSWERED
    other = f"set {SETTINGS[level]} to another disk" if level == SHARED else elsewhere(level)
    number = number_of(error)
    if number is None:
        # Some libraries do not pass on the cause. The space that is free may tell.
        ours = isinstance(error, CheckpointError | MemoryError)
        return None if ours else f"{free(folder)}: {other}"
    return remedy(error, folder, other)


def elsewhere(level: str) -> str:
    """What helps where a level of the node takes no versions."""
    return f"set {SETTINGS[level]} to another folder, or set {level}: 0"
