"""What the ranks of one run have found out about their files, put together a checkpoint: all that is saved between the same two updates."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench_probe.check.saved import WORST_FIRST, Saved
from ckptbench_probe.files import after_rename
from ckptbench_probe.reading import Event, traces

NEVER_FINISHED = "its engine has not said that it was finished"
ELSEWHERE = "a process that does not train has saved it, and training may go on meanwhile: it cannot be compared"
UNKNOWN = "files of {kind} cannot be compared"


@dataclass
class Checkpoint:
    saves: list[Saved] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        return min((one.verdict for one in self.saves), key=WORST_FIRST.index)

    @property
    def path(self) -> str:
        return self._worst[0].path

    @property
    def update(self) -> int:
        return max(one.update for one in self.saves)

    @property
    def text(self) -> str:
        """Why; of the first file that has this verdict."""
        first, *others = self._worst
        return first.text + (f" (so {len(others)} more of this update)" if others else "")

    @property
    def _worst(self) -> list[Saved]:
        return [one for one in self.saves if one.verdict == self.verdict]

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path, "update": self.update, "verdict": self.verdict, "text": self.text,
            "files": sum(len(one.files) for one in self.saves), "compared": sum(one.compared for one in self.saves), "saves": [one.as_dict() for one in self.saves],
        }  # fmt: skip


@dataclass
class _Row:
    """One save of one process."""

    given: Event
    path: str
    checkpoint: str
    found: Event | None = None
    group: int = 0
    """Updates before it: of the first rank that has saved under the same name, as ranks may count otherwise."""

    @property
    def at_begin(self) -> bool:
        """Whether it is only known when it began, in the background: saves of one path may have begun one after another when training had ended."""
        return bool((self.found or {}).get("at_begin"))

    @property
    def update(self) -> int:
        """Whose state it is: a save in the background may begin later."""
        seen, given = self.found or {}, self._given
        whole = seen.get("updates") if self.at_begin and not seen.get("torn_number") else ()
        return int(max(whole)) if whole and given not in whole else given

    @property
    def done(self) -> int:
        """Updates of the process before it."""
        return int((self.found or self.given)["done"]) - (self._given - self.update)

    @property
    def _given(self) -> int:
        return int(self.given["update"] if self.found is None else self.found["update_given"])


@dataclass(frozen=True)
class Rank:
    """A process that updates, or one that only saves."""

    number: int
    rows: tuple[_Row, ...]
    saves: tuple[Event, ...]
    """As they are measured, of any engine."""
    trains: bool = True
    troubles: tuple[str, ...] = ()
    """Errors of the check itself."""


def ranks(folder: Path, run: str) -> list[Rank]:
    found = []
    for _, events in traces(folder):
        updates = [event for event in events if event["event"] == "updates"]
        if events[0].get("run") == run:
            named = [one["rank"] for one in [*updates, events[0]] if one.get("rank") is not None]
            saves = tuple(event for event in events if event["event"] == "save")
            rows = tuple(_rows(events))
            troubles = tuple(event["reason"] for event in events if event["event"] == "trouble")
            found.append(Rank(named[0] if named else 0, rows, saves, bool(updates), troubles))
    return found


def checkpoints(ranks: list[Rank]) -> list[Checkpoint]:
    """In the order of their updates."""
    found: dict[tuple[Any, ...], Saved] = {}
    _group(ranks)
    own = _own_folders(ranks)
    for rank in filter(lambda rank: rank.trains, ranks):
        times: Counter[tuple[int, str]] = Counter()
        for row in rank.rows:
            key = (
                row.group,
                own.get((row.group, row.checkpoint), row.checkpoint),
                times[row.group, row.path],
            )
            times[row.group, row.path] += row.at_begin
            one = found.setdefault(key, Saved(key[1], row.update))
            one.kinds.add(row.given["kind"])
            one.files.add(row.path)
            one.ranks.add(rank.number)
            one.add(row.found or {"trouble": NEVER_FINISHED})
    for path, save, trains in _not_compared(ranks):
        done = save["updates"] if trains else path
        one = found.setdefault((done, path, 0), Saved(path, save["updates"]))
        one.kinds.add(save["kind"])
        one.troubles.append(UNKNOWN.format(kind=save["kind"]) if trains else ELSEWHERE)
    by_updates: dict[Any, Checkpoint] = defaultdict(Checkpoint)
    for (done, *_), one in found.items():
        by_updates[done].saves.append(one)
    return sorted(by_updates.values(), key=lambda one: (one.update, one.path))


def _group(ranks: list[Rank]) -> None:
    known: dict[tuple[int, str], int] = {}
    for rank in filter(lambda rank: rank.trains, ranks):
        groups: dict[int, int] = {}
        for row in rank.rows:
            if (row.update, row.checkpoint) in known:
                groups.setdefault(row.done, known[row.update, row.checkpoint])
        for row in rank.rows:
            row.group = groups.get(row.done, row.done)
            known.setdefault((row.update, row.checkpoint), row.group)


def _own_folders(ranks: list[Rank]) -> dict[tuple[int, str], str]:
    """The folder of each file, where all that was saved to it is of the same two updates: it is saved under the name of the folder."""
    users: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for rank in filter(lambda rank: rank.trains, ranks):
        for row in rank.rows:
            users[os.path.dirname(row.checkpoint)].add((row.group, row.checkpoint))
    only = {
        folder: files for folder, files in users.items() if len({done for done, _ in files}) == 1
    }
    if len(users) == 1:
        return {}  # the only folder: it is not that of one checkpoint
    return {file: folder for folder, files in only.items() if len(files) > 1 for file in files}


def _not_compared(ranks: list[Rank]) -> Iterator[tuple[str, Event, bool]]:
    """Saves that are measured, and of which no rank has compared a file; and whether a rank has saved them."""
    known = {row.given["checkpoint"] for rank in ranks if rank.trains for row in rank.rows}
    for rank in ranks:
        for save in rank.saves:
            if save["path"] not in known:
                yield save["path"], save, rank.trains


def _rows(events: list[Event]) -> list[_Row]:
    """Files that are renamed once they are whole are told by their last name."""
    rows: list[_Row] = []
    by_number: dict[int, _Row] = {}
    for event in events:
        kind = event["event"]
        if kind == "given":
            row = _Row(event, event["path"], event["checkpoint"])
            rows.append(row)
            by_number[event["save"]] = row
        elif kind == "checked" and event["save"] in by_number:
            by_number[event["save"]].found = event
        elif kind in ("moved", "copied") and event["source"]:
            _rename(rows, event["source"], event["path"])
    return rows


def _rename(rows: list[_Row], source: str, target: str) -> None:
    """The newest save of that name, or all that it is a folder of."""
    hit = next((row for row in reversed(rows) if source in (row.path, row.checkpoint)), None)
    for row in rows:
        if hit is None or row.given["done"] == hit.given["done"]:
            row.path = after_rename(row.path, source, target)
            row.checkpoint = after_rename(row.checkpoint, source, target)
