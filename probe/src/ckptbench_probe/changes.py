"""What a run has done to the checkpoints on disk, in the order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ckptbench_probe.reading import ProbedProcess
from ckptbench_probe.storage import is_in, is_url


class Change(NamedTuple):
    """Of the checkpoints on disk."""

    at_ns: int
    kind: str
    """overwritten, finished, moved, duplicated, linked, pointed or removed."""
    path: str
    source: str = ""
    to: str = ""
    """What a pointer names."""


FOLDERS_OF_MANY = ("session", "accelerate")
"""Kinds of saves whose path may be a folder that keeps older checkpoints."""


def changes(process: ProbedProcess) -> Iterator[tuple[Change, set[str]]]:
    """Each with the paths that were whole just before it, as far as this process has seen."""
    moves: dict[str, list[int]] = defaultdict(list)
    found: list[Change] = []
    for event in process.events:
        if event["event"] in ("moved", "duplicated", "linked", "pointed", "removed"):
            source = event.get("source") or ""
            to = event.get("to") or (source if event["event"] == "duplicated" else "")
            found.append(Change(event["at_ns"], event["event"], event["path"], source, to))
        if event["event"] == "moved":
            moves[event["path"]].append(event["at_ns"])
    for save in process.saves:
        end = save.finished_ns
        renamed = any(save.start_ns <= at <= (end or at) for at in moves[save.path])
        if not renamed and save.kind not in FOLDERS_OF_MANY and not is_url(save.path):
            found.append(Change(save.start_ns, "overwritten", save.path))
        if end is not None and not save.failed:
            found.append(Change(end, "finished", save.path))
    whole: set[str] = set()
    for change in sorted(found):
        yield change, whole
        gone = change.source if change.kind == "moved" else change.path
        own = [path for path in whole if is_in(path, change.source)] if change.source else []
        if change.kind in ("overwritten", "removed", "moved"):
            whole -= {path for path in whole if is_in(path, gone)}
        whole |= {change.path + path[len(change.source) :] for path in own}
        if change.kind == "finished":
            whole.add(change.path)
