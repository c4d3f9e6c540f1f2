"""Read a folder of traces: the processes of one run, their updates and their saves, on one clock."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ckptbench_probe import syscalls
from ckptbench_probe.files import after_rename
from ckptbench_probe.trace import FORMAT

Event = dict[str, Any]


class UnreadableError(Exception):
    """The folder cannot be summarized; the message is one line for the user."""


@dataclass(frozen=True)
class ProbedSave:
    """One save of one process. Nanoseconds of the run's clock; None where it was not seen."""

    id: str
    kind: str
    path: str
    start_ns: int
    stepping: bool
    """Whether it was on the thread that steps."""
    updates: int
    """Done before it."""
    end_ns: int | None = None
    captured_ns: int | None = None
    finished_ns: int | None = None
    failed: bool = False
    bytes: dict[str, int] = field(default_factory=dict)
    clean_ns: int | None = None
    clean: str = ""
    """What could be seen of its files: see `storage`."""
    files: int = 0
    size: int = 0
    file_system: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True)
class ProbedProcess:
    """One trace."""

    host: str
    pid: int
    command: tuple[str, ...]
    rank: int | None
    ranks: int | None
    born_ns: int | None
    restarts: int
    """Before it, as its launcher counts them."""
    began_ns: int
    ended_ns: int | None
    """None where it was killed."""
    updates_ns: tuple[int, ...]
    skipped: frozenset[int]
    backwards: int
    counted: int
    """Updates between which they were."""
    saves: tuple[ProbedSave, ...]
    state: dict[str, dict[str, int]]
    events: tuple[Event, ...]
    """Of files: moved, linked, removed, copied (moved from another device), duplicated, pointer (opened), pointed (what it said then), synced, storing (in parts, has begun), stored (in an object store)."""

    @cached_property
    def _moves(self) -> dict[str, list[tuple[int, str]]]:
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for event in self.events:
            if event["event"] in ("moved", "copied") and event["source"]:
                found[event["source"]].append((event["at_ns"], event["path"]))
        return found

    def last_name(self, save: ProbedSave) -> str:
        """Of its file or folder, which may have been renamed since, or the folder that it lies in."""
        path, since_ns = save.path, save.start_ns
        while True:
            names = [path, *map(str, Path(path).parents)]
            moves = [
                (at, one, to)
                for one in names
                for at, to in self._moves.get(one, ())
                if at > since_ns
            ]
            if not moves:
                return path
            since_ns, source, target = min(moves)
            path = after_rename(path, source, target)


@dataclass(frozen=True)
class ProbedRun:
    name: str
    folder: Path
    processes: tuple[ProbedProcess, ...]
    others: int
    """Runs whose traces lie in the same folder."""
    by_strace: tuple[Event, ...] | None = None
    """Syncs of files in the folders of checkpoints. None: strace has not seen each rank."""

    @property
    def trained(self) -> tuple[ProbedProcess, ...]:
        """The ranks: processes that update."""
        return tuple(one for one in self.processes if one.updates_ns)


def read(folder: Path, run: str | None = None) -> ProbedRun:
    """The run of this name, else the one that began last. Raises UnreadableError."""
    if not folder.is_dir():
        raise UnreadableError(
            f"{folder} is not a folder: name the one that `ckptbench-probe run` printed"
        )
    runs: dict[str, list[tuple[Event, list[Event]]]] = defaultdict(list)
    for path, events in traces(folder):
        opening = events[0]
        if opening.get("event") != "process" or opening.get("format") != FORMAT:
            raise UnreadableError(
                f"{path} is not a trace of this version of ckptbench-probe: move it out of the folder"
            )
        runs[opening["run"]].append((opening, events[1:]))
    if run is None and runs:
        run = max(runs, key=lambda name: max(opening["unix_ns"] for opening, _ in runs[name]))
    chosen = runs.get(run or "", [])
    offsets = _offsets(opening for opening, _ in chosen)
    processes = [_process(opening, events, offsets[opening["boot"]]) for opening, events in chosen]
    others = len(runs) - bool(chosen)
    found = ProbedRun(run or "", folder, tuple(sorted(processes, key=_order)), others)
    return replace(found, by_strace=_by_strace(found))


def _by_strace(run: ProbedRun) -> tuple[Event, ...] | None:
    processes, calls = syscalls.seen(run.folder, run.name)
    if not run.trained or not {(one.host, one.pid) for one in run.trained} <= processes:
        return None
    roots = tuple(
        {os.path.dirname(save.path) + os.sep for one in run.trained for save in one.saves}
    )
    return tuple(
        {"event": "synced", "path": call.path, "at_ns": call.at_ns}
        for call in calls
        if call.path.startswith(roots) and not os.path.isdir(call.path)
    )


def _order(process: ProbedProcess) -> tuple[int, int]:
    return process.began_ns, process.rank or 0


def traces(folder: Path) -> Iterator[tuple[Path, list[Event]]]:
    """Files, and the events of their whole lines. Without those of processes that were killed while they wrote their first line."""
    for path in sorted(folder.glob("trace-*.jsonl")):
        if events := _whole_lines(path):
            yield path, events


def _whole_lines(path: Path) -> list[Event]:
    """A killed process, or a full disk, may leave a torn one."""
    found: list[Event] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def _offsets(openings: Iterable[Event]) -> dict[str, int]:
    """From the monotonic clock of each boot to the time of day, as its first process saw it: the time of day may be set meanwhile."""
    first: dict[str, Event] = {}
    for opening in openings:
        known = first.get(opening["boot"])
        if known is None or opening["at_ns"] < known["at_ns"]:
            first[opening["boot"]] = opening
    return {boot: opening["unix_ns"] - opening["at_ns"] for boot, opening in first.items()}


FILES = (
    "moved",
    "linked",
    "removed",
    "copied",
    "duplicated",
    "pointer",
    "pointed",
    "synced",
    "storing",
    "stored",
)
TIMES = ("at_ns", "start_ns", "end_ns", "begun_ns")


def _process(opening: Event, events: list[Event], offset: int) -> ProbedProcess:
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        shifted = {name: event[name] + offset for name in TIMES if name in event}
        by_kind[event["event"]].append({**event, **shifted})
    updates = by_kind["updates"]
    named = next((one for one in updates if "rank" in one), opening)
    exits = by_kind["exit"]
    files = [one for kind in FILES for one in by_kind[kind]]
    return ProbedProcess(
        host=opening["host"],
        pid=opening["pid"],
        command=tuple(opening["command"]),
        rank=named["rank"],
        ranks=named["ranks"],
        born_ns=None if opening["born_ns"] is None else opening["born_ns"] + offset,
        restarts=opening["restarts"],
        began_ns=opening["at_ns"] + offset,
        ended_ns=exits[-1]["at_ns"] if exits else None,
        updates_ns=tuple(_moments(updates)),
        skipped=frozenset(_skipped(updates, by_kind["skipped"])),
        backwards=updates[-1]["backwards"] if updates else 0,
        counted=updates[-1]["counted"] if updates else 0,
        saves=tuple(_saves(by_kind)),
        state=by_kind["state"][-1]["bytes"] if by_kind["state"] else {},
        events=tuple(sorted(files, key=lambda one: int(one["at_ns"]))),
    )


def _moments(updates: list[Event]) -> Iterable[int]:
    for batch in updates:
        yield batch["at_ns"]
        yield from (batch["at_ns"] + 1000 * after for after in batch["then_us"])


def _skipped(updates: list[Event], flagged: list[Event]) -> Iterable[int]:
    for batch in updates:
        yield from batch.get("skipped", [])
    for event in flagged:
        yield from event["updates"]


def _saves(by_kind: dict[str, list[Event]]) -> Iterable[ProbedSave]:
    found = {
        one["save"]: ProbedSave(one["save"], one["kind"], one["path"], one["start_ns"], one["stepping"], one["updates"])
        for one in by_kind["save"]
    }  # fmt: skip
    for one in by_kind["end"]:
        _set(found, one, end_ns=one["end_ns"], bytes=one["bytes"], failed=one["failed"])
    for one in by_kind["captured"]:
        _set(found, one, captured_ns=one["at_ns"])
    for one in by_kind["finished"]:
        failed = {"failed": True} if one.get("failed") else {}
        _set(found, one, finished_ns=one["at_ns"], **failed)
    for one in by_kind["part_end"]:
        if one["save"] in found and not found[one["save"]].bytes:
            _set(found, one, bytes=one["bytes"])
    for one in by_kind["clean"]:
        _set(
            found, one, clean_ns=one["at_ns"], clean=one["state"], files=one["files"], size=one["size"],
            file_system=one["file_system"], memory_bytes=one["memory_bytes"],
        )  # fmt: skip
    return found.values()


def _set(found: dict[str, ProbedSave], event: Event, **fields: Any) -> None:
    """Ends whose begin is in a line that was torn are left out."""
    if event["save"] in found:
        found[event["save"]] = replace(found[event["save"]], **fields)
