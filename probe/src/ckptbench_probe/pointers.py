"""Links and small files, as `latest`, that name a checkpoint: whether it was finished, and on storage, when they did."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ckptbench_probe.changes import Change, changes
from ckptbench_probe.files import after_rename
from ckptbench_probe.reading import Event, ProbedProcess, ProbedRun, ProbedSave
from ckptbench_probe.storage import is_in, is_url, place

SYNCED_UNSEEN = {"orbax"}
"""Engines that sync in C++, where Python shows nothing."""
NUMBER, STEM = "number", "stem"


def synced(run: ProbedRun) -> list[Event]:
    """Syncs of files: by strace where it has seen each rank, else those that Python called on files with content."""
    if run.by_strace is not None:
        return list(run.by_strace)
    every = (event for process in run.processes for event in process.events)
    return [event for event in every if event["event"] == "synced" and event["size"] > 0]


def pointed_too_early(run: ProbedRun) -> list[str]:
    """To a checkpoint that is not whole yet."""
    early = Counter(
        os.path.basename(pointer.path)
        for process, pointer, whole in _pointers(run)
        if _is_early(pointer, process, whole)
    )
    return [
        f"{times} times {name} was moved to an unfinished checkpoint: a kill at that moment leaves it there."
        " Move it when the save has finished"
        for name, times in early.items()
    ]


def pointed_before_sync(run: ProbedRun) -> list[str]:
    """To a checkpoint that is whole, and that a power cut can still take; where nothing is ever synced, that is said by itself."""
    syncs = synced(run)
    early = Counter(
        os.path.basename(pointer.path)
        for process, pointer, whole in _pointers(run)
        if not _is_early(pointer, process, whole)
        for save in _newest(pointer, process)[:1]
        if syncs
        and not is_url(save.path)
        and save.kind not in (set() if run.by_strace is not None else SYNCED_UNSEEN)
        if not any(_is_of(sync, save, process, pointer.at_ns) for sync in syncs)
    )
    return [
        f"{times} times {name} was moved to an unsynced checkpoint: a power cut soon after can leave it at a lost one."
        " Sync its files and their folder first"
        for name, times in early.items()
    ]


def moves(run: ProbedRun) -> int:
    """Of pointers to a checkpoint that is known."""
    return sum(bool(_newest(pointer, process)) for process, pointer, _ in _pointers(run))


def _pointers(run: ProbedRun) -> Iterator[tuple[ProbedProcess, Change, set[str]]]:
    """Each with the paths that were whole when it was moved. Files of a checkpoint itself are no pointers, nor what an engine does within the call that saves."""
    made_aside = {
        event["source"]
        for process in run.processes
        for event in process.events
        if event["event"] == "moved"
    }
    for process in run.trained:
        for change, whole in changes(process):
            if change.to and change.path not in made_aside and not _is_of_engine(change, process):
                yield process, change, whole


def _is_of_engine(pointer: Change, process: ProbedProcess) -> bool:
    return any(is_in(pointer.path, save.path) for save in process.saves) or any(
        save.stepping and save.start_ns <= pointer.at_ns <= _returned_ns(save, pointer)
        for save in _newest(pointer, process)
    )


def _returned_ns(save: ProbedSave, pointer: Change) -> int:
    """When the engine's call did. A save to an open file of a store ends later: what comes between is the program's own."""
    return min(save.end_ns or pointer.at_ns, save.captured_ns or pointer.at_ns)


def _is_of(sync: Event, save: ProbedSave, process: ProbedProcess, until_ns: int) -> bool:
    """Whether it was of a file of this save, under the name that it had then, before the pointer was moved."""
    if not save.start_ns <= sync["at_ns"] <= until_ns:
        return False
    path = str(sync["path"])
    if is_in(path, save.path):
        return True
    for event in process.events:
        if event["event"] == "moved" and event["source"] and sync["at_ns"] <= event["at_ns"]:
            path = after_rename(path, event["source"], event["path"])
    return is_in(path, save.path) or is_in(path, process.last_name(save))


def _is_early(pointer: Change, process: ProbedProcess, whole: set[str]) -> bool:
    return any(
        not _was_renamed(save, process, pointer.at_ns)
        and (save.path not in whole or _waits_for_its_name(save, pointer, process))
        for save in _newest(pointer, process)
    )


def _waits_for_its_name(save: ProbedSave, pointer: Change, process: ProbedProcess) -> bool:
    """Whether the pointer names it as it is called later."""
    later = process.last_name(save)
    return later != save.path and _names(pointer, later, ()) and not _names(pointer, save.path, ())


def _newest(pointer: Change, process: ProbedProcess) -> list[ProbedSave]:
    """Saves that it names, also by the name that a draft gets later: of the newest update."""
    # A session may say at its end when saves were finished, which a killed one has not.
    known = [save for save in process.saves if save.finished_ns or save.kind != "session"]
    named = [
        save
        for save in known
        if any(_names(pointer, path) for path in {save.path, process.last_name(save)})
    ]
    begun = [save for save in named if save.start_ns <= pointer.at_ns] or named
    return [save for save in begun if save.updates == max(one.updates for one in begun)]


def _was_renamed(save: ProbedSave, process: ProbedProcess, until_ns: int) -> bool:
    return any(
        event["event"] == "moved" and save.start_ns <= event["at_ns"] <= until_ns and is_in(save.path, event["source"] or "?")
        for event in process.events
    )  # fmt: skip


def _names(pointer: Change, path: str, ways: Iterable[str] = (NUMBER, STEM)) -> bool:
    """Whether what it says is this path or its folder, by a path or its name, or in one of these other ways: its number, as `30` for `global_step30`, or its name without an ending."""
    folder, to = os.path.dirname(pointer.path), pointer.to
    whole = place(to if is_url(to) else os.path.join(folder, to))
    if is_in(path, whole) or is_in(whole, path):
        return True
    name = os.path.relpath(path, folder).split(os.sep)[0]
    if to.isdigit() and NUMBER in ways:
        return int(to) in map(int, re.findall(r"\d+", name))
    return any(
        re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w.-])", to)
        for one in (name, *([os.path.splitext(name)[0]] if STEM in ways else []))
    )
