"""Done markers, by which ranks report to the rank that commits that their shards of a version are written.

They are files in the staging folder (of an object store, in the run folder), because a save in the background must not use the collectives of training. Each lists
the files of its rank, so blocking saves have them too. They are removed before the version is committed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ckptbench.common.errors import CheckpointError, RunFolderError
from ckptbench.common.files import read_shaped
from ckptbench.common.shape import check
from ckptbench.run.events import File

VISIBLE_SECONDS = 60.0
"""How long a file system may take to show a file that another node has written."""
SHORTEST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.0005, 0.01
"""Ranks end their equal shards at about the same time, so the first looks follow soon after one another."""


def mark_written(folder: Path, rank: int, files: Iterable[File]) -> None:
    """Write the marker that this rank's files are on stable storage."""
    content = [dataclasses.asdict(file) for file in files]
    marker = _marker(folder, rank)
    partial = marker.with_suffix(".writing")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(marker)


def gather_marked(
    folder: Path, ranks: Sequence[int], *, are_written: bool, staging: Path | None
) -> list[File]:
    """Wait for the markers of these ranks and for their files in full size, remove the markers, and return the files.

    `folder` has the markers, `staging` the files. None: the files are objects, and the store lists them at once.
    `are_written`: all ranks have finished writing, so wait at most VISIBLE_SECONDS. If not, wait without limit for each
    marker: the launcher ends this rank if one of them fails. Raises CheckpointError if what is written cannot be seen after
    VISIBLE_SECONDS: the folder is not on a file system that all nodes share.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS
    files: list[File] = []
    for rank in ranks:
        marker = _marker(folder, rank)
        _await(marker, None, deadline if are_written else math.inf, f"the shard of rank {rank}")
        if not are_written:
            deadline = time.monotonic() + VISIBLE_SECONDS
        own = _files_of(marker)
        if staging is not None:
            for file in own:
                _await(staging / file.name, file.bytes, deadline, file.name)
        marker.unlink()
        files += own
    return files


def _files_of(marker: Path) -> list[File]:
    try:
        files = read_shaped(marker, list[dict[str, Any]])
        for file in files:
            check(file, File)
        return [File(**file) for file in files]
    except (RunFolderError, ValueError, TypeError) as error:
        raise CheckpointError(f"{marker} is no done marker of a rank: {error}") from error


def _await(path: Path, size: int | None, deadline: float, what: str) -> None:
    pause = SHORTEST_POLL_SECONDS
    while not _is_there(path, size):
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"{path.parent} lacks {what}, which another rank has written: "
                "checkpoints.folder must be on a file system that all nodes share"
            )
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_POLL_SECONDS)


def _is_there(path: Path, size: int | None) -> bool:
    try:
        found = os.stat(path).st_size
    except FileNotFoundError:
        return False
    return size is None or found == size


def _marker(folder: Path, rank: int) -> Path:
    return folder / f"done-{rank}.json"
