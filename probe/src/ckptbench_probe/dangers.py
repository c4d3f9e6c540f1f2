"""Known dangers of the engines that a run has used, each told only where it was seen, or where the engine always has it."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ckptbench_probe.measures import Measures
from ckptbench_probe.reading import Event, ProbedProcess, ProbedRun, ProbedSave
from ckptbench_probe.storage import is_url

MOST_NAMES = 3
SYNCED_UNSEEN = {"orbax"}
"""Engines that sync in C++, where Python shows nothing."""


def dangers(run: ProbedRun, measures: Measures) -> list[str]:
    """A line each: what was seen, and what it means."""
    found = [
        *_failed(measures),
        *_commit_record(run),
        *_no_sync(run),
        *_no_version_left(run),
        *_pointed_too_early(run),
        *_in_place(run),
        *_copied(run),
        *_half_written(run),
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


def synced(run: ProbedRun) -> list[Event]:
    """Syncs of files: by strace where it has seen each rank, else those that Python called on files with content."""
    if run.by_strace is not None:
        return list(run.by_strace)
    return [event for event in _events(run, "synced") if event["size"] > 0]


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
        names = dict.fromkeys(os.path.basename(path) for one in failed for path in one.paths)
        more = len(names) - MOST_NAMES
        shown = ", ".join([*names][:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        yield f"{len(failed)} of {len(measures.checkpoints)} checkpoints failed ({shown}): do not resume from {'them' if len(failed) > 1 else 'it'}"


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
        for change, whole in _changes(process)
        if change.kind == "removed" and _leaves_none(process, change, whole)
    ]
    if lost:
        yield f"{len(lost)} times the last whole checkpoint was removed before the next was written: meanwhile the disk had none"


def _leaves_none(process: ProbedProcess, removal: _Change, whole: set[str]) -> bool:
    """Beside a save, or right before one: a checkpoint that goes before steps do may have been copied to elsewhere."""
    gone = {path for path in whole if _is_in(path, removal.path)}
    at = removal.at_ns
    step = next((one for one in process.updates_ns if one > at), None)
    needed = any(
        at < save.start_ns <= (step or save.start_ns)
        or (save.start_ns <= at and save.path not in gone and (save.failed or (save.finished_ns or at + 1) > at))
        for save in process.saves
    )  # fmt: skip
    return bool(gone) and not whole - gone and needed


def _pointed_too_early(run: ProbedRun) -> Iterator[str]:
    """A link or a small file, as `latest`, names a checkpoint that is not whole yet."""
    made_aside = {event["source"] for event in _events(run, "moved")}
    early = Counter(
        os.path.basename(change.path)
        for process in run.trained
        for change, whole in _changes(process)
        if change.to and change.path not in made_aside
        if _is_early(change, process, whole)
    )
    for name, times in early.items():
        yield (
            f"{times} times {name} was moved to an unfinished checkpoint: a kill at that moment leaves it there."
            " Move it when the save has finished"
        )


def _is_early(pointer: _Change, process: ProbedProcess, whole: set[str]) -> bool:
    """Of what it names, the newest counts. Files of a checkpoint itself are no pointers, nor what an engine does within the call that saves."""
    if any(_is_in(pointer.path, save.path) for save in process.saves):
        return False
    # A session may say at its end when saves were finished, which a killed one has not.
    known = [save for save in process.saves if save.finished_ns or save.kind != "session"]
    named = [save for save in known if _names(pointer, save.path)]
    begun = [save for save in named if save.start_ns <= pointer.at_ns] or named
    newest = [save for save in begun if save.updates == max(one.updates for one in begun)]
    if any(save.stepping and save.start_ns <= pointer.at_ns <= (save.end_ns or pointer.at_ns) for save in newest):  # fmt: skip
        return False
    return any(save.path not in whole and not _was_renamed(save, process, pointer.at_ns) for save in newest)  # fmt: skip


def _was_renamed(save: ProbedSave, process: ProbedProcess, until_ns: int) -> bool:
    return any(
        event["event"] == "moved" and save.start_ns <= event["at_ns"] <= until_ns and _is_in(save.path, event["source"] or "?")
        for event in process.events
    )  # fmt: skip


def _names(pointer: _Change, path: str) -> bool:
    """Whether what it says is this path or its folder, by a path, its name or its number, as `global_step30` and `30`."""
    folder, to = os.path.dirname(pointer.path), pointer.to
    whole = os.path.normpath(os.path.join(folder, to))
    if _is_in(path, whole) or _is_in(whole, path):
        return True
    name = os.path.relpath(path, folder).split(os.sep)[0]
    if to.isdigit():
        return int(to) in map(int, re.findall(r"\d+", name))
    return any(
        re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w.-])", to)
        for one in (name, os.path.splitext(name)[0])
    )


def _in_place(run: ProbedRun) -> Iterator[str]:
    """While the only checkpoint is written anew under its own name, none is whole."""
    found = Counter(
        os.path.basename(change.path)
        for process in run.trained
        for change, whole in _changes(process)
        if change.kind == "overwritten" and whole == {change.path}
    )
    for name, times in found.items():
        yield (
            f"{times} times the only whole checkpoint was overwritten in place ({name}): a kill at that moment leaves none."
            " Save under another name, and rename it by os.replace when it is whole"
        )


class _Change(NamedTuple):
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


def _changes(process: ProbedProcess) -> Iterator[tuple[_Change, set[str]]]:
    """Each with the paths that were whole just before it, as far as this process has seen."""
    moves: dict[str, list[int]] = defaultdict(list)
    found: list[_Change] = []
    for event in process.events:
        if event["event"] in ("moved", "duplicated", "linked", "pointed", "removed"):
            source = event.get("source") or ""
            to = event.get("to") or (source if event["event"] == "duplicated" else "")
            found.append(_Change(event["at_ns"], event["event"], event["path"], source, to))
        if event["event"] == "moved":
            moves[event["path"]].append(event["at_ns"])
    for save in process.saves:
        end = save.finished_ns
        renamed = any(save.start_ns <= at <= (end or at) for at in moves[save.path])
        if not renamed and save.kind not in FOLDERS_OF_MANY and not is_url(save.path):
            found.append(_Change(save.start_ns, "overwritten", save.path))
        if end is not None and not save.failed:
            found.append(_Change(end, "finished", save.path))
    whole: set[str] = set()
    for change in sorted(found):
        yield change, whole
        gone = change.source if change.kind == "moved" else change.path
        own = [path for path in whole if _is_in(path, change.source)] if change.source else []
        if change.kind in ("overwritten", "removed", "moved"):
            whole -= {path for path in whole if _is_in(path, gone)}
        whole |= {change.path + path[len(change.source) :] for path in own}
        if change.kind == "finished":
            whole.add(change.path)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


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
