"""Known dangers of the engines that a run has used, each told only where it was seen, or where the engine always has it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from ckptbench_probe.measures import Measures
from ckptbench_probe.reading import Event, ProcessSeen, Run, SaveSeen

IN_PLACE = {"torch.save", "safetensors"}
"""Engines that open the file of the last save again where they get its name again, so that its content is gone from then on."""
SYNCED_UNSEEN = {"orbax"}
"""Engines that sync in C++, where Python shows nothing."""


def dangers(run: Run, measures: Measures) -> list[str]:
    """A line each: what was seen, and what it means."""
    whole = [one for one in measures.checkpoints if not one.failed]
    kinds = {kind for one in whole for kind in one.kinds}
    found = [
        *_commit_record(run),
        *_no_sync(run, kinds),
        *_no_version_left(run),
        *_overwritten(run),
        *_copied(run),
        *_half_written(run),
    ]
    failed = sum(one.failed for one in measures.checkpoints)
    if failed:
        found.append(f"{failed} of {len(measures.checkpoints)} checkpoints failed")
    unfinished = sum(one.finished_s is None and not one.failed for one in measures.checkpoints)
    if unfinished:
        found.append(
            f"{unfinished} of {len(measures.checkpoints)} checkpoints were never said to be finished"
        )
    return found


def _events(run: Run, kind: str) -> list[Event]:
    return [
        event for process in run.processes for event in process.events if event["event"] == kind
    ]


def _saves(run: Run) -> list[SaveSeen]:
    return [save for process in run.trained for save in process.saves if not save.failed]


def synced(run: Run) -> list[Event]:
    """Syncs of files: by strace where it has seen each rank, else those that Python called on files with content."""
    if run.by_strace is not None:
        return list(run.by_strace)
    return [event for event in _events(run, "synced") if event["size"] > 0]


def _commit_record(run: Run) -> Iterator[str]:
    """A file that was synced while Python still held some of its content back, and was then renamed to its final name."""
    early: Counter[str] = Counter()
    for process in run.processes:
        for sync, move in _synced_then_moved(process.events):
            if sync["size"] < move["size"]:
                early[os.path.basename(move["path"])] += 1
    for name, times in early.items():
        engine = "DCP" if name == ".metadata" else "the program"
        yield f"{engine} has synced {name} before all of it was handed to the kernel ({times} times): a power cut soon after a save can leave it empty or cut off"


def _synced_then_moved(events: tuple[Event, ...]) -> Iterator[tuple[Event, Event]]:
    """The last sync of each file before its rename, and the rename."""
    synced: dict[str, Event] = {}
    for event in events:
        if event["event"] == "synced":
            synced[event["path"]] = event
        elif event["event"] == "moved" and event["source"] in synced:
            yield synced.pop(event["source"]), event


def _no_sync(run: Run, kinds: set[str]) -> Iterator[str]:
    unseen = SYNCED_UNSEEN if run.by_strace is None else set()
    if kinds - unseen and not synced(run):
        witness = "" if run.by_strace is None else " by strace"
        yield f"no sync was seen{witness}: a power cut can take a checkpoint for about 35 s after it was written (Linux's defaults)"


def _no_version_left(run: Run) -> Iterator[str]:
    """An older checkpoint is removed, while the newer one is under way and no other whole one is left."""
    lost = {
        (process.pid, event["path"], _saves_before(process.saves, event))
        for process in run.trained
        for event in process.events
        if event["event"] == "removed" and _leaves_none(process.saves, process.events, event)
    }
    if lost:
        yield f"{len(lost)} times the last whole checkpoint was removed before the next was written: none was on disk meanwhile"


def _overwritten(run: Run) -> Iterator[str]:
    """A save opens the file of an earlier one again, while its process has no other whole checkpoint."""
    of_each = [_overwrites(one, save) for one in run.trained for save in one.saves]
    if any(of_each):
        yield (
            f"{sum(of_each)} of {len(of_each)} saves overwrote the last whole checkpoint in place: a kill during one leaves none, unless you keep a copy."
            " Save under another name, and rename the file when it is whole"
        )


def _overwrites(process: ProcessSeen, save: SaveSeen) -> bool:
    if save.kind not in IN_PLACE:
        return False
    saves = (one for one in process.saves if not one.failed)
    wholes = {one.path: one.finished_ns for one in saves if one.finished_ns and one.finished_ns <= save.start_ns}  # fmt: skip
    for event in process.events:
        if event["at_ns"] <= save.start_ns and event["event"] in ("moved", "removed"):
            _take_away(wholes, event)
    return set(wholes) == {save.path}


def _take_away(wholes: dict[str, int], event: Event) -> None:
    """Of a file or a folder with all in it. Where it was moved, it is whole under its new name."""
    source = event["source"] if event["event"] == "moved" else event["path"]
    if source is None:
        return
    for path, finished_ns in list(wholes.items()):
        if finished_ns <= event["at_ns"] and (path + os.sep).startswith(source + os.sep):
            del wholes[path]
            if event["event"] == "moved":
                wholes[event["path"] + path[len(source) :]] = finished_ns


def _saves_before(saves: tuple[SaveSeen, ...], removal: Event) -> int:
    """To the same path. A folder is removed twice: as a tree, and then as an empty folder."""
    return sum(save.path == removal["path"] and save.start_ns <= removal["at_ns"] for save in saves)


def _leaves_none(saves: tuple[SaveSeen, ...], events: tuple[Event, ...], removal: Event) -> bool:
    at, path = removal["at_ns"], removal["path"]
    if not any(save.path == path for save in saves):
        return False
    under_way = any(
        save.start_ns <= at and (save.finished_ns or at + 1) > at and save.path != path
        for save in saves
    )
    gone = {
        event["path"] for event in events if event["event"] == "removed" and event["at_ns"] <= at
    }
    whole = {save.path for save in saves if save.finished_ns and save.finished_ns <= at}
    return under_way and not whole - gone


def _copied(run: Run) -> Iterator[str]:
    copies = _events(run, "copied")
    if copies:
        one = copies[0]
        yield (
            f"{len(copies)} files were moved from another device ({os.path.dirname(one['source'])}): the final name is there before the file"
            " is whole. Set TMPDIR to the checkpoints' own file system"
        )


def _half_written(run: Run) -> Iterator[str]:
    """Trainer writes into the final folder, and goes on from that of the highest number, whole or not."""
    taken = "get_last_checkpoint takes the highest number"
    saves = [
        (one, save) for one in run.trained for save in one.saves if save.kind == "transformers"
    ]
    cut_off = {save.path for one, save in saves if save.end_ns is None and one.ended_ns is None}
    for path in sorted(cut_off):
        yield f"{path} is half written, as the training was killed in the save, and counts as the last one ({taken}): remove it before you resume"
    if saves and not cut_off:
        yield f"a checkpoint folder of Trainer that is half written counts as the last one: {taken}"
