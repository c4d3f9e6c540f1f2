"""Known dangers of the engines that a run has used, each told only where it was seen, or where the engine always has it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from ckptbench_probe.changes import Change, changes
from ckptbench_probe.measures import Measures
from ckptbench_probe.pointers import (
    SYNCED_UNSEEN,
    pointed_before_sync,
    pointed_too_early,
    synced,
)
from ckptbench_probe.reading import Event, ProbedProcess, ProbedRun, ProbedSave
from ckptbench_probe.storage import is_in, is_url

MOST_NAMES = 3


def dangers(run: ProbedRun, measures: Measures) -> list[str]:
    """A line each: what was seen, and what it means."""
    found = [
        *_failed(measures),
        *_commit_record(run),
        *_no_sync(run),
        *_no_version_left(run),
        *pointed_too_early(run),
        *pointed_before_sync(run),
        *_in_place(run),
        *_copied(run),
        *_half_written(run),
        *_left_parts(run),
        *_stored_cut_off(run),
    ]
    unfinished = sum(one.finished_s is None and not one.failed for one in measures.checkpoints)
    if unfinished:
        found.append(
            f"{unfinished} of {len(measures.checkpoints)} checkpoints were never reported as finished"
        )
    return found


def _events(run: ProbedRun, kind: str) -> list[Event]:
    return [
        event for process in run.processes for event in process.events if event["event"] == kind
    ]


def _saves(run: ProbedRun) -> list[ProbedSave]:
    return [save for process in run.trained for save in process.saves if not save.failed]


def _commit_record(run: ProbedRun) -> Iterator[str]:
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


def _failed(measures: Measures) -> Iterator[str]:
    failed = [one for one in measures.checkpoints if one.failed]
    if failed:
        shown = _names(path for one in failed for path in one.paths)
        yield f"{len(failed)} of {len(measures.checkpoints)} checkpoints failed ({shown}): do not resume from {'them' if len(failed) > 1 else 'it'}"


def _names(paths: Iterable[str]) -> str:
    names = dict.fromkeys(map(os.path.basename, paths))
    more = len(names) - MOST_NAMES
    return ", ".join([*names][:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _no_sync(run: ProbedRun) -> Iterator[str]:
    kinds = {save.kind for save in _saves(run) if not is_url(save.path)}
    unseen = SYNCED_UNSEEN if run.by_strace is None else set()
    if kinds - unseen and not synced(run):
        by_strace = "" if run.by_strace is None else " by strace"
        yield f"no sync was seen{by_strace}: a power cut can take a checkpoint for about 35 s after it was written (Linux's defaults)"


def _no_version_left(run: ProbedRun) -> Iterator[str]:
    """The last whole checkpoint is removed, while the next one is under way or right before it begins."""
    lost = [
        change
        for process in run.trained
        for change, whole in changes(process)
        if change.kind == "removed" and _leaves_none(process, change, whole)
    ]
    if lost:
        yield f"{len(lost)} times the last whole checkpoint was removed before the next was written: meanwhile the disk had none"


def _leaves_none(process: ProbedProcess, removal: Change, whole: set[str]) -> bool:
    """Beside a save, or right before one: a checkpoint that goes before steps do may have been copied to elsewhere."""
    gone = {path for path in whole if is_in(path, removal.path)}
    at = removal.at_ns
    step = next((one for one in process.updates_ns if one > at), None)
    needed = any(
        at < save.start_ns <= (step or save.start_ns)
        or (save.start_ns <= at and save.path not in gone and (save.failed or (save.finished_ns or at + 1) > at))
        for save in process.saves
    )  # fmt: skip
    return bool(gone) and not whole - gone and needed


def _in_place(run: ProbedRun) -> Iterator[str]:
    """While the only checkpoint is written anew under its own name, none is whole."""
    found = Counter(
        os.path.basename(change.path)
        for process in run.trained
        for change, whole in changes(process)
        if change.kind == "overwritten" and whole == {change.path}
    )
    for name, times in found.items():
        yield (
            f"{times} times the only whole checkpoint was overwritten in place ({name}): a kill at that moment leaves none."
            " Save under another name, and rename it by os.replace when it is whole"
        )


def _copied(run: ProbedRun) -> Iterator[str]:
    copies = _events(run, "copied")
    if copies:
        one = copies[0]
        yield (
            f"{len(copies)} files were moved from another device ({os.path.dirname(one['source'])}): the final name is there before the file"
            " is whole. Set TMPDIR to the checkpoints' own file system"
        )


def _half_written(run: ProbedRun) -> Iterator[str]:
    """Trainer writes into the final folder, and goes on from that of the highest number, whole or not."""
    taken = "get_last_checkpoint takes the highest number"
    saves = [
        (one, save) for one in run.trained for save in one.saves if save.kind == "transformers"
    ]
    cut_off = {save.path for one, save in saves if save.end_ns is None and one.ended_ns is None}
    for path in sorted(cut_off):
        yield f"{path} is half written (the training was killed during the save) and counts as the last one ({taken}): remove it before you resume"
    if saves and not cut_off:
        yield f"Trainer takes a half-written checkpoint folder as the last one: {taken}"


def _left_parts(run: ProbedRun) -> Iterator[str]:
    """Uploads that were begun, and neither completed nor begun anew with success."""
    left: dict[str, None] = {}
    for process in run.processes:
        own: dict[str, None] = {}
        for event in process.events:
            if event["event"] == "storing":
                own[event["path"]] = None
            elif event["event"] == "stored":
                own.pop(event["path"], None)
        left.update(own)
    if left:
        yield (
            f"{len(left)} uploads in parts were not finished ({_names(left)}): the store keeps their parts, and bills them."
            " Let the bucket abort unfinished uploads after a day (a lifecycle rule)"
        )


def _stored_cut_off(run: ProbedRun) -> Iterator[str]:
    """A file of fsspec is closed, and so uploaded, also where the `with` around it ends by an error."""
    found = dict.fromkeys(event["path"] for event in _events(run, "stored") if event["cut_off"])
    if found:
        yield (
            f"{len(found)} objects were uploaded although the save to them had failed ({_names(found)}): they are cut off, under their final name."
            " Remove them; write in a transaction of fsspec, which uploads nothing after an error"
        )
