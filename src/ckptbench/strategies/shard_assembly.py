"""Parts of a version that lie on several nodes become one version of the shared store again.

Each node lists what its local tiers hold. All nodes have all lists, so each of them takes the same decision by itself:
which step is taken, and which node gives the files of which rank. They write into one staging folder of the shared store.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench.checkpoints.checksum import Checksum
from ckptbench.checkpoints.levels import Levels
from ckptbench.checkpoints.shares import gather_shares, note_share
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Version, checksums_of
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import fsync, write_all
from ckptbench.common.remedies import blame
from ckptbench.common.removal import remove_or_warn
from ckptbench.matrix.levels import LEVELS, SHARED
from ckptbench.runs.events import File
from ckptbench.runs.identity import Identity
from ckptbench.runs.position import Position
from ckptbench.world.ranks import RankContext

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
Gather = Callable[[str, Any], Sequence[Any]]
NAMED = 8
"""Ranks that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A version of one level of one node."""

    level: str
    step: int
    attempt: int
    """That wrote it. The same step of two attempts need not be the same state."""
    ranks: tuple[int, ...]
    """Whose files it has, all of each: those of the node and those of which the node keeps copies."""

    @classmethod
    def of(cls, level: str, version: Version) -> Holding:
        ranks = {file.rank for file in version.files.values() if file.rank is not None}
        return cls(
            level=level,
            step=version.position.step,
            attempt=version.attempt,
            ranks=tuple(sorted(ranks)),
        )


@dataclass(frozen=True, slots=True)
class Source:
    """Where the files of a rank are taken from."""

    holder: int
    """The number of a node's list."""
    level: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One step of one attempt, and what the nodes have of it."""

    step: int
    attempt: int
    sources: Mapping[int, Source]
    """By rank: on the nearest level, and there on the first node."""

    def lacking(self, ranks: int) -> list[int]:
        """The ranks, of so many, whose files no node has."""
        return [rank for rank in range(ranks) if rank not in self.sources]


def candidates(held: Sequence[Sequence[Holding]], *, after: int) -> list[Candidate]:
    """All steps after `after` of which any node has a part, newest first; of one step the later attempt first.

    `held` has the list of each node. The order of a list does not matter.
    """
    sources: dict[tuple[int, int], dict[int, Source]] = {}
    ordered = sorted(
        (
            (LEVELS.index(each.level), holder, each)
            for holder, own in enumerate(held)
            for each in own
        ),
        key=lambda found: found[:2],
    )
    for _, holder, each in ordered:
        if each.step > after:
            of_step = sources.setdefault((each.step, each.attempt), {})
            for rank in each.ranks:
                of_step.setdefault(rank, Source(holder, each.level))
    return [Candidate(*key, sources[key]) for key in sorted(sources, reverse=True)]


def choose(found: Sequence[Candidate], *, ranks: int) -> Candidate | None:
    """The first of the candidates that has the files of all ranks; None if there is none."""
    return next((each for each in found if not each.lacking(ranks)), None)


def assemble_shards(
    levels: Levels, world: RankContext, gather: Gather, *, identity: Identity, after: int
) -> Version | None:
    """Make the newest whole step after `after` that the local tiers hold a version of the shared store.

    Every rank calls it, and no other writes. `levels` are those of this node. Of each node only the first rank works.
    Rank 0 commits, and returns the version; the others return None, as all do if there is no such step. Raises
    CheckpointError if files cannot be copied, or if a local folder is another user's.
    """
    works = world.local_rank == 0
    own = look(levels, identity, after) if works else {}
    told = gather("held", [dataclasses.asdict(each) for each in own])
    held = [
        [Holding(**{**each, "ranks": tuple(each["ranks"])}) for each in of_rank] for of_rank in told
    ]
    found = candidates(held, after=after)
    chosen = choose(found, ranks=world.world_size)
    if world.rank == 0:
        _tell(found, chosen, world, after)
    if chosen is None:
        return None
    staging = levels.shared.staging(chosen.step)
    like = next((_like(version) for version in own.values() if _is_of(version, chosen)), None)
    if like is not None:
        note_share(staging, world.rank, _bring(own, chosen, world.rank, staging))
    told = gather("brought", like)
    if world.rank != 0:
        return None
    workers = [rank for rank, of_rank in enumerate(told) if of_rank is not None]
    files = gather_shares(staging, workers, are_written=True)
    about = told[workers[0]]
    version = levels.shared.sync(
        staging,
        files,
        identity=identity,
        position=Position(**about["position"]),
        world_size=world.world_size,
        format=about["format"],
        attempt=chosen.attempt,
    ).version
    levels.shared.commit(staging, version)
    levels.shared.retain()
    return version


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
    store = CheckpointStore(levels.shared.folder / f"compared-{level}", keep=1)
    if world.rank == 0:
        store.clear()
    parts = Levels({level: levels.stores[level].folder, SHARED: store.folder}, keep=1)
    assemble_shards(parts, world, gather, identity=identity, after=0)
    meet()
    yield from store.versions()
    meet()
    if world.rank == 0:
        remove_or_warn(store.folder)


def look(levels: Levels, identity: Identity, after: int) -> dict[Holding, Version]:
    """The versions of this run's local tiers after this step, after a check of every byte. Damaged ones are set aside.

    What cannot be read is not there: another node may have it. Raises CheckpointError if a folder is another user's.
    """
    levels.make()
    found: dict[Holding, Version] = {}
    for level, store in levels.local.items():
        try:
            store.discard_partial()
            for version in store.sound(after=after):
                if different := version.identity.another_run(identity):
                    log.warning(
                        "%s is of another run, and not taken: %s", version.folder, different
                    )
                else:
                    found[Holding.of(level, version)] = version
        except (CheckpointError, OSError) as error:
            log.warning("what %s holds is not taken: %s", store.folder, error)
    return found


def _bring(
    own: Mapping[Holding, Version], chosen: Candidate, rank: int, staging: Path
) -> list[File]:
    """Copy those files into `staging` that this node gives, and put them on stable storage."""
    brought = []
    for held, version in own.items():
        if not _is_of(version, chosen):
            continue
        checksums = checksums_of(version.folder)
        for name, file in version.files.items():
            if file.rank is not None and chosen.sources[file.rank] == Source(rank, held.level):
                _copy(version.folder / name, staging / name, checksums[name])
                brought.append(dataclasses.replace(file, checksum=checksums[name]))
    return brought


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


def _is_of(version: Version, chosen: Candidate) -> bool:
    return (version.position.step, version.attempt) == (chosen.step, chosen.attempt)


def _like(version: Version) -> dict[str, Any]:
    """What all parts of a version have in common, as JSON."""
    return {"position": dataclasses.asdict(version.position), "format": version.format}


def _tell(
    found: Sequence[Candidate], chosen: Candidate | None, world: RankContext, after: int
) -> None:
    """Say in the log what is taken, and what newer steps lack."""
    for each in found:
        if each is chosen:
            break
        lacking = each.lacking(world.world_size)
        log.warning(
            "step %d of attempt %d cannot be taken from the nodes: the shares of rank %s are lost",
            each.step,
            each.attempt,
            ", ".join(map(str, lacking[:NAMED])) + (" and others" if lacking[NAMED:] else ""),
        )
    if chosen is not None:
        nodes = {source.holder for source in chosen.sources.values()}
        log.info("step %d is taken from the local tiers of %d nodes", chosen.step, len(nodes))
    else:
        log.info("the nodes hold no whole step after step %d", after)
