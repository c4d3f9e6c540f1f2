"""At which events of a save a training is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ckptbench_probe.check.killing import BEFORE, BEGUN, HALF, REMOVE, RENAME, WRITE
from ckptbench_probe.files import is_pointer
from ckptbench_probe.reading import Event

RECORDS = (".metadata", "trainer_state.json")
"""Files that make a checkpoint count, beside those that a name tells to be pointers."""


@dataclass(frozen=True)
class Point:
    rank: int
    index: int
    """Of the event, among those of the rank in this save."""
    how: str
    """How far it gets."""
    what: str
    path: str
    """Below the folder of checkpoints."""

    @property
    def told(self) -> str:
        """For `KILL_AT`, behind the updates."""
        return f"{self.rank} {self.index} {self.how}"

    @property
    def name(self) -> str:
        """For the user."""
        of = f" of rank {self.rank}" if self.rank else ""
        place = {
            (WRITE, BEFORE): "before {} is written",
            (WRITE, BEGUN): "{} empty",
            (WRITE, HALF): "half of {}",
            (RENAME, BEFORE): "before the rename to {}",
            (REMOVE, BEFORE): "before {} is removed",
            (REMOVE, HALF): "half of {} removed",
        }
        return place.get((self.what, self.how), "before the link {} is made").format(self.path) + of


def every(events: list[Event]) -> list[Point]:
    """After each event is before the next one; after the last one is the end of the recorded run."""
    return [
        Point(one["rank"], one["index"], how, one["what"], one["path"])
        for one in events
        for how in _hows(one)
    ]


def _hows(event: Event) -> tuple[str, ...]:
    if event["what"] == WRITE:
        return BEFORE, BEGUN, HALF
    return (BEFORE, HALF) if event["what"] == REMOVE and event["folder"] else (BEFORE,)


def chosen(events: list[Event]) -> list[Point]:
    """Of the first rank that writes: its first file begun and half, the second one not begun, a rename, what follows the last rename, a pointer or commit record begun, and the removal of an old checkpoint."""
    own = [one for one in every(events) if one.rank == events[0]["rank"]] if events else []
    return list(dict.fromkeys(_chosen(own)))


def _chosen(points: list[Point]) -> Iterator[Point]:
    writes = [one for one in points if one.what == WRITE and not is_record(one.path)]
    yield from [one for one in writes if one.how == BEGUN][:1]
    yield from [one for one in writes if one.how == HALF][:1]
    yield from [one for one in writes if one.how == BEFORE][1:2]
    renames = [one for one in points if one.what == RENAME]
    yield from renames[:1]
    if renames:
        yield from [one for one in points if one.index > renames[-1].index and one.how == BEFORE][:1]  # fmt: skip
    yield from [one for one in points if one.what == WRITE and is_record(one.path) and one.how == BEGUN][-1:]  # fmt: skip
    removals = [one for one in points if one.what == REMOVE]
    yield from removals[:1]
    yield from [one for one in removals if one.how == HALF][:1]
    if removals:
        yield from [one for one in points if one.index > removals[-1].index and one.how == BEFORE][:1]  # fmt: skip


def is_record(path: str) -> bool:
    """Perhaps under a name that it has until it is whole, as `latest.tmp`."""
    name = os.path.basename(path)
    return any(one in RECORDS or is_pointer(one) for one in (name, os.path.splitext(name)[0]))
