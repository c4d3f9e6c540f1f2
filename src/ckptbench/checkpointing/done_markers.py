"""Done markers: notes of ranks to the rank that commits, which say that their shards of a version are written.

Notes are files in the staging folder, because a save in the background must not use the collectives of training. They
are removed before the version is committed.
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
"""Ranks end their equal shares at about the same time, so the first looks follow soon after one another."""


def mark_written(staging: Path, rank: int, files: Iterable[File]) -> None:
    """Write the note that this rank's files are on stable storage."""
    content = [dataclasses.asdict(file) for file in files]
    note = _note(staging, rank)
    partial = note.with_suffix(".writing")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(note)


def gather_marked(staging: Path, ranks: Sequence[int], *, are_written: bool) -> list[File]:
    """Wait for the notes of these ranks and for their files in full size, remove the notes, and return the files.

    `are_written`: all ranks have finished writing, so wait at most VISIBLE_SECONDS. If not, wait without limit for each
    note: the launcher ends this rank if one of them fails. Raises CheckpointError if what is written cannot be seen after
    VISIBLE_SECONDS: the folder is not on a file system that all nodes share.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS
    files: list[File] = []
    for rank in ranks:
        note = _note(staging, rank)
        _await(note, None, deadline if are_written else math.inf, f"the share of rank {rank}")
        if not are_written:
            deadline = time.monotonic() + VISIBLE_SECONDS
        share = _noted(note)
        for file in share:
            _await(staging / file.name, file.bytes, deadline, file.name)
        note.unlink()
        files += share
    return files


def _noted(note: Path) -> list[File]:
    try:
        files = read_shaped(note, list[dict[str, Any]])
        for file in files:
            check(file, File)
        return [File(**file) for file in files]
    except (RunFolderError, ValueError, TypeError) as error:
        raise CheckpointError(f"{note} is no note of a rank: {error}") from error


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


def _note(staging: Path, rank: int) -> Path:
    return staging / f"share-{rank}.note"
