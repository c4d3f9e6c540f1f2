"""The timed parts of a restore, as events of the trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.version import Version
from ckptbench.common import page_cache
from ckptbench.common.clock import clock
from ckptbench.run.events import Phase


def evict(version: Version, *, first_of_node: bool, barrier: Callable[[], None]) -> Phase:
    """Have one rank of every node drop the version from the node's page cache, while no other reads it."""
    # No page cache holds objects.
    folder = version.folder if isinstance(version.folder, Path) else None
    files = [] if folder is None else [folder / name for name in version.files]
    started_ns = clock()
    if first_of_node:
        page_cache.evict(files)
    barrier()
    left = sum(page_cache.resident_bytes(path) for path in files)
    return Phase(name="evict", start_ns=started_ns, end_ns=clock(), resident_bytes=left)


def timed_load(manager: CheckpointManager, version: Version, rank: int) -> Phase:
    """Load the version into this rank."""
    is_here = isinstance(version.folder, Path)
    fetched = page_cache.read_bytes() if is_here else None
    started_ns = clock()
    manager.load(version)
    ended_ns = clock()
    now = page_cache.read_bytes()
    return Phase(
        name="load",
        start_ns=started_ns,
        end_ns=ended_ns,
        read_bytes=None if fetched is None or now is None else now - fetched,
        bytes=sum(file.bytes for file in version.read_by(rank)),
    )
