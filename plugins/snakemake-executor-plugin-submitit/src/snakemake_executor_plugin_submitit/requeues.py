"""Why jobs went back to the queue: a job notes it in a file beside its result, and the workflow reads it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from submitit.core.core import Job
from submitit.core.utils import JobPaths

SUFFIX = "_requeues.txt"
Why = Literal["limit", "preempted", "lost", "unknown"]


@dataclass(frozen=True)
class Requeue:
    """`limit`: stopped before its time limit. `preempted`: told to stop before that. `lost`: `nodes` answered no more."""

    why: Why
    nodes: tuple[str, ...] = ()


def note(paths: JobPaths, requeue: Requeue) -> None:
    """Called in the job. Without effect where the file cannot be written: going on matters more."""
    with suppress(OSError), _path(paths).open("a") as file:
        file.write(f"{' '.join([requeue.why, *requeue.nodes])}\n")


def noted(jobs: Iterable[Job[Any]]) -> dict[str, list[Requeue]]:
    """The requeues of each job that has any, in their order. One listing per folder, whatever the number of jobs."""
    listings: dict[Path, set[str]] = {}
    found = {}
    for job in jobs:
        path = _path(job.paths)
        if path.parent not in listings:
            with suppress(OSError):
                listings[path.parent] = set(os.listdir(path.parent))
        if path.name in listings.get(path.parent, ()):
            found[job.job_id] = [_read(line.split()) for line in path.read_text().splitlines()]
    return found


def _read(words: Sequence[str]) -> Requeue:
    why, *nodes = words or ["unknown"]
    return Requeue(cast(Why, why) if why in get_args(Why) else "unknown", tuple(nodes))


def _path(paths: JobPaths) -> Path:
    return Path(paths.folder) / f"{paths.job_id}{SUFFIX}"
