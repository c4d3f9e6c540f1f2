"""Parts of a version that lie on several nodes become one version of the shared store again.

Each node lists what its local tiers hold. All nodes have all lists, so each of them takes the same decision by itself:
which step is taken. They copy their files into one staging folder of the shared store.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckptbench.checkpointing.checksum import Checksum
from ckptbench.checkpointing.contract import Slot
from ckptbench.checkpointing.done_markers import gather_marked, mark_written
from ckptbench.checkpointing.levels import Levels
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version, checksums_of
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import fsync, write_all
from ckptbench.common.remedies import blame
from ckptbench.common.removal import remove_or_warn
from ckptbench.matrix.levels import SHARED
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.events import File
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
Gather = Callable[[str, Any], Sequence[Any]]
Key = tuple[int, int]
"""A step, and the attempt that wrote it."""
Part = tuple[int, int, Sequence[int]]
"""A step that a node holds, its attempt, and the ranks whose files it has: those of the node."""
NAMED = 8
"""Ranks that a message names."""


def parts_held(held: Iterable[Sequence[Part]], *, after: int) -> dict[Key, set[int]]:
    """The ranks whose files any node has, by step after `after` and attempt: the newest step first, and of it the later attempt.

    The same step of two attempts need not be the same state. `held` has the list of each node.
    """
    ranks: dict[Key, set[int]] = {}
    for step, attempt, own in itertools.chain.from_iterable(held):
        if step > after:
            ranks.setdefault((step, attempt), set()).update(own)
    return {key: ranks[key] for key in sorted(ranks, reverse=True)}


def choose(parts: Mapping[Key, set[int]], *, ranks: int) -> Key | None:
    """The first that has the files of so many ranks, which is all; None if there is none."""
    return next((key for key, own in parts.items() if len(own) == ranks), None)


def assemble_shards(
    levels: Levels, world: RankContext, gather: Gather, *, identity: Identity, after: int
) -> Version | None:
    """Make the newest whole step after `after` that the local tiers hold a version of the shared store.

    Every rank calls it, and no other writes. `levels` are those of this node. Of each node only the first rank works.
    Rank 0 commits, and returns the version; the others return None, as all do if there is no such step. Raises
    CheckpointError if files cannot be copied, or if a local folder is another user's.
    """
    own = look(levels, identity, after) if world.local_rank == 0 else {}
    parts = parts_held(gather("held", [_part(version) for version in own.values()]), after=after)
    chosen = choose(parts, ranks=world.world_size)
    if world.rank == 0:
        _tell(parts, chosen, world.world_size, after)
    if chosen is None:
        return None
    step, attempt = chosen
    staging = Slot.of(levels.shared, SHARED, step).open()  # no object store: see the config
    version = own.get(chosen)
    if version is not None:
        mark_written(staging, world.rank, _bring(version, staging))
    told = gather("brought", version and _like(version))
    if world.rank != 0:
        return None
    workers = [rank for rank, of_rank in enumerate(told) if of_rank is not None]
    files = gather_marked(staging, workers, are_written=True, staging=staging)
    about = told[workers[0]]
    made = levels.shared.sync(
        staging,
        files,
        identity=identity,
        position=Position(**about["position"]),
        world_size=world.world_size,
        format=about["format"],
        attempt=attempt,
    ).version
    levels.shared.commit(staging, made)
    levels.shared.retain()
    return made


def newest_of_all_nodes(
    level: str,
    levels: Levels,
    world: RankContext,
    gather: Gather,
    *,
    meet: Callable[[], None],
    identity: Identity,
) -> Iterator[Version]:
    """The newest version of this level, from the parts on all nodes, as a restart puts it together.

    It lies in the shared folder until the caller asks for the next one. Every rank calls it.
    """
    assert isinstance(levels.shared, CheckpointStore), "levels of nodes have no object store"
    store = CheckpointStore(levels.shared.folder / f"compared-{level}", keep=1)
    if world.rank == 0:
        store.clear()
    parts = Levels({level: levels.local[level].folder, SHARED: store.folder}, keep=1)
    assemble_shards(parts, world, gather, identity=identity, after=0)
    meet()
    yield from store.versions()
    meet()
    if world.rank == 0:
        remove_or_warn(store.folder)


def look(levels: Levels, identity: Identity, after: int) -> dict[Key, Version]:
    """The versions of this run's local tiers after this step, each from the nearest level. Damaged ones are set aside.

    What cannot be read is not there. Raises CheckpointError if a folder is another user's.
    """
    levels.make()
    found: dict[Key, Version] = {}
    for store in levels.local.values():
        try:
            store.discard_partial()
            for version in store.sound(after=after):
                if different := version.identity.another_run(identity):
                    log.warning(
                        "%s is of another run, and not taken: %s", version.folder, different
                    )
                else:
                    found.setdefault((version.position.step, version.attempt), version)
        except (CheckpointError, OSError) as error:
            log.warning("what %s holds is not taken: %s", store.folder, error)
    return found


def _part(version: Version) -> Part:
    ranks = {file.rank for file in version.files.values() if file.rank is not None}
    return version.position.step, version.attempt, sorted(ranks)


def _bring(version: Version, staging: Path) -> list[File]:
    """Copy this node's files into `staging`, and put them on stable storage."""
    checksums = checksums_of(version.folder)
    for name in version.files:
        source = version.folder / name
        assert isinstance(source, Path), "levels of nodes have no object store"
        _copy(source, staging / name, checksums[name])
    return [
        dataclasses.replace(file, checksum=checksums[name]) for name, file in version.files.items()
    ]


def _copy(source: Path, target: Path, checksum: str) -> None:
    copied, block = Checksum(), memoryview(bytearray(BLOCK_BYTES))
    try:
        with source.open("rb", buffering=0) as reader, target.open("wb", buffering=0) as writer:
            while count := reader.readinto(block):
                copied.update(block[:count])
                write_all(writer, block[:count])
        fsync(target)
    except OSError as error:
        raise CheckpointError(
            f"{source} cannot be copied to {target}: {blame(error, target)}"
        ) from error
    if copied.hexdigest() != checksum:
        raise CheckpointError(f"{source} was changed while it was copied")


def _like(version: Version) -> dict[str, Any]:
    """What all parts of a version have in common, as JSON."""
    return {"position": dataclasses.asdict(version.position), "format": version.format}


def _tell(parts: Mapping[Key, set[int]], chosen: Key | None, ranks: int, after: int) -> None:
    """Say in the log what is taken, and what newer steps lack."""
    for key in itertools.takewhile(lambda key: key != chosen, parts):
        lacking = [rank for rank in range(ranks) if rank not in parts[key]]
        log.warning(
            "step %d of attempt %d cannot be taken from the nodes: the shards of rank %s are lost",
            *key,
            ", ".join(map(str, lacking[:NAMED])) + (" and others" if lacking[NAMED:] else ""),
        )
    if chosen is not None:
        log.info("step %d is taken from the local tiers of the nodes", chosen[0])
    elif after:
        log.info("the nodes hold no whole step after step %d: the level shared serves", after)
    else:
        log.info("the nodes hold no whole step")
