"""What the ranks of one run have found out about their files, put together a checkpoint."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench_probe.reading import Event, whole_lines

WHOLE, TORN, CANNOT_TELL = "whole", "TORN", "cannot tell"
NEVER_FINISHED = "its engine has not said that it was finished"
NOTHING = "it holds no tensor that can be compared"
ELSEWHERE = "a process that does not train has saved it, and training may go on meanwhile: it cannot be compared"
UNKNOWN = "files of {kind} cannot be compared"


@dataclass
class Checkpoint:
    """All files that were saved under one name after one update."""

    path: str
    update: int
    """After which the save was given its state."""
    kinds: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    compared: int = 0
    not_compared: int = 0
    torn: int = 0
    names: list[str] = field(default_factory=list)
    """Of some that are torn."""
    torn_of: Counter[str] = field(default_factory=Counter)
    several: Counter[str] = field(default_factory=Counter)
    updates: set[int] | None = None
    """Those whose state all files are; None where no value tells."""
    troubles: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.torn or self.several:
            return TORN
        return CANNOT_TELL if self.troubles or not self.compared else WHOLE

    @property
    def state_of(self) -> int | None:
        """The update whose state it is."""
        if not self.updates:
            return None
        return self.update if self.update in self.updates else max(self.updates)

    @property
    def text(self) -> str:
        if self.torn:
            return f"{self._torn()}: {self._instead()}"
        if self.several:
            parts = " and ".join(f"{n} of update {of}" for of, n in sorted(self.several.items()))
            return f"its tensors are of several updates: {parts}"
        if self.verdict == CANNOT_TELL:
            return "; ".join(dict.fromkeys(self.troubles)) or NOTHING
        if self.state_of is None:
            return f"what the save was given after update {self.update}"
        return f"the state of update {self.state_of}"

    def _torn(self) -> str:
        names = ", ".join(self.names[:3]) + (", ..." if self.torn > len(self.names[:3]) else "")
        return f"{self.torn} of {self.compared} tensors are not those that the save was given ({names})"

    def _instead(self) -> str:
        mixed = self.torn_of["mixed"]
        updates = sorted((of for of in self.torn_of if of != "mixed"), key=int)
        if not updates:
            return "of no update (mixed)" if mixed else f"not of update {self.update}"
        text = f"of update {' and '.join(updates)} instead of {self.update}"
        return text + (f", {mixed} of no update (mixed)" if mixed else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path, "update": self.update, "verdict": self.verdict, "text": self.text, "state_of": self.state_of,
            "kinds": sorted(self.kinds), "files": sorted(self.files), "ranks": sorted(self.ranks), "compared": self.compared,
            "not_compared": self.not_compared, "torn": self.torn, "names": self.names, "torn_of": dict(self.torn_of),
            "several": dict(self.several),
        }  # fmt: skip

    def add(self, found: Event) -> None:
        """The result of one rank for one file."""
        if "trouble" in found:
            self.troubles.append(found["trouble"])
            return
        self.compared += found["compared"]
        self.not_compared += found["not_compared"]
        self.torn += found["torn_number"]
        self.names += [name for name in found["torn"] if name not in self.names]
        self.torn_of.update(found["torn_of"])
        self.several.update(found["several"])
        if found["updates"] and not found["torn_number"]:
            self._of(set(found["updates"]))

    def _of(self, updates: set[int]) -> None:
        common = updates if self.updates is None else self.updates & updates
        if not common and self.updates is not None:
            self.several.update({str(max(self.updates)): 1, str(max(updates)): 1})
        self.updates = common


@dataclass
class _Row:
    """One save of one process."""

    given: Event
    path: str
    checkpoint: str
    found: Event | None = None


@dataclass(frozen=True)
class Rank:
    """A process that updates, or one that only saves."""

    number: int
    rows: tuple[_Row, ...]
    saves: tuple[Event, ...]
    """As they are measured, of any engine."""
    trains: bool = True


def ranks(folder: Path, run: str) -> list[Rank]:
    found = []
    for path in sorted(folder.glob("trace-*.jsonl")):
        events, _ = whole_lines(path)
        updates = [event for event in events if event["event"] == "updates"]
        if events and events[0].get("run") == run:
            named = [one["rank"] for one in [*updates, events[0]] if one.get("rank") is not None]
            saves = tuple(event for event in events if event["event"] == "save")
            rows = tuple(_rows(events))
            found.append(Rank(named[0] if named else 0, rows, saves, trains=bool(updates)))
    return found


def checkpoints(ranks: list[Rank]) -> list[Checkpoint]:
    """In the order of their updates."""
    found: dict[tuple[int, str], Checkpoint] = {}
    for rank in filter(lambda rank: rank.trains, ranks):
        for row in rank.rows:
            update = row.given["update"] if row.found is None else row.found["update_given"]
            one = found.setdefault((update, row.checkpoint), Checkpoint(row.checkpoint, update))
            one.kinds.add(row.given["kind"])
            one.files.add(row.path)
            one.ranks.add(rank.number)
            one.add(row.found or {"trouble": NEVER_FINISHED})
    for path, save, trains in _not_compared(ranks):
        one = found.setdefault((save["updates"], path), Checkpoint(path, save["updates"]))
        one.kinds.add(save["kind"])
        one.troubles.append(UNKNOWN.format(kind=save["kind"]) if trains else ELSEWHERE)
    return sorted(found.values(), key=_order)


def _order(one: Checkpoint) -> tuple[int, str]:
    return one.update if one.state_of is None else one.state_of, one.path


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
        elif kind == "moved" and event["source"]:
            _rename(rows, event["source"], event["path"])
    return rows


def _rename(rows: list[_Row], source: str, target: str) -> None:
    """The newest save of that name, and all that it wrote below it."""
    hit = next((row for row in reversed(rows) if source in (row.path, row.checkpoint)), None)
    if hit is None:
        return
    for row in rows:
        if row.given["update"] == hit.given["update"]:
            row.path = _moved(row.path, source, target)
            row.checkpoint = _moved(row.checkpoint, source, target)


def _moved(path: str, source: str, target: str) -> str:
    if path == source:
        return target
    below = source.rstrip(os.sep) + os.sep
    return os.path.join(target, path[len(below) :]) if path.startswith(below) else path
