"""At which moments the power is cut, what of the disk is missing then, and how that is said in a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ckptbench_probe.check.disk import (  # fmt: skip
    CREATE,
    DATA,
    EXT4,
    FOLDER,
    LINK,
    REMOVE,
    RENAME,
    SIZE,
    XFS,
    Change,
    Recorded,
)
from ckptbench_probe.check.left import EMPTY, HALF, PAGE, ZEROS, Key, Left, Storage
from ckptbench_probe.check.points import is_record
from ckptbench_probe.words import counted

SYSTEMS = {"ext4": (EXT4,), "xfs": (XFS,), "any": (EXT4, XFS)}
MOST = 10
"""Cuts by default."""
_DONE = {
    CREATE: "{} is created", FOLDER: "{} is created", LINK: "the link {} is made", REMOVE: "{} is removed", SIZE: "{} is emptied", DATA: "{} is written",
}  # fmt: skip
_LOST = {
    CREATE: "the new {} is lost", FOLDER: "the new folder {} is lost", LINK: "the new link {} is lost", REMOVE: "the removal of {} is undone", SIZE: "that {} is emptied is lost",
}  # fmt: skip


@dataclass(frozen=True)
class Cut:
    name: str
    """For the user."""
    storage: Storage
    left: Left
    key: Key


def cuts(found: Recorded, systems: tuple[str, ...], root: Path, window: tuple[int, int], *, whole: bool) -> list[Cut]:  # fmt: skip
    """Those whose folders are different, each with the file systems that can leave it. `whole`: at every change, else some of them."""
    storages = [Storage(found, system, root, window) for system in systems]
    lefts: dict[Key, Left] = {}
    for together in zip_longest(*(_every(one) if whole else _chosen(one) for one in storages)):
        for storage, left in zip(storages, together):
            if left is not None:
                lefts.setdefault(storage.key(left), left)
    some = list(lefts.items())[: None if whole else MOST]
    return [_named(key, left, storages) for key, left in some]


def _chosen(storage: Storage) -> Iterator[Left]:
    """At the end of the save: all unforced data missing, or that of one kind of files, or the names too. Then with the data missing: after the last and the first removal, and after each rename, link, file that is emptied, pointer or commit record, the last ones first."""
    end = storage.end
    yield from _without_data(storage, end)
    yield Left(end, storage.forced_until(end))
    turns = [one for one in storage.changed if one.kind in (RENAME, LINK, SIZE) or (one.kind == CREATE and is_record(one.path))]  # fmt: skip
    removed = [one for one in storage.changed if one.kind == REMOVE]
    for one in [*removed[-1:], *removed[:1], *reversed(turns)]:
        yield _all_missing(storage, Left(one.at, one.at))


def _without_data(storage: Storage, at: int) -> Iterator[Left]:
    left = Left(at, at)
    files = storage.unforced(left)
    yield _all_missing(storage, left)
    records = [path for path in files if is_record(path)]
    others = [path for path in files if path not in records]
    others.sort(key=lambda path: -files[path])
    for path in [path for path in others if files[path] > PAGE][:1]:
        yield _missing(storage, left, ZEROS, path)
    yield _missing(storage, left, EMPTY, *others[:1])
    yield _missing(storage, left, EMPTY, *others)
    yield _missing(storage, left, EMPTY, *records)


def _every(storage: Storage) -> Iterator[Left]:
    moments = sorted({storage.end, *(one.at for one in storage.changed if one.kind != DATA)})
    for at in reversed(moments):
        yield from _without_data(storage, at)
        left = Left(at, at)
        for path, size in storage.unforced(left).items():
            for how in (EMPTY, *((HALF, ZEROS) if size > PAGE else ())):
                yield _missing(storage, left, how, path)
        yield left
        yield Left(at, storage.forced_until(at))
    forced = storage.forced_until(storage.end)
    for until in moments:
        if until >= forced:
            yield _all_missing(storage, Left(storage.end, until))


def _missing(storage: Storage, left: Left, how: str, *paths: str) -> Left:
    lost = {storage.inode(path, left.until): how for path in paths}
    return Left(left.cut, left.until, lost)


def _all_missing(storage: Storage, left: Left) -> Left:
    return _missing(storage, left, EMPTY, *storage.unforced(left))


def _named(key: Key, left: Left, storages: list[Storage]) -> Cut:
    storage = next(one for one in storages if one.key(left) == key)
    missing = [*_names_missing(storage, left), *_data_missing(storage, left)]
    what = ", ".join(missing) or "nothing is lost"
    # XFS can leave all that ext4 can.
    only = f" ({XFS} only)" if storage.system == XFS and len(storages) > 1 else ""
    return Cut(f"{_moment(storage, left.cut)}: {what}{only}", storage, left, key)


def _moment(storage: Storage, at: int) -> str:
    if at >= storage.end:
        return "before the next save"
    last = [one for one in storage.changed if one.at <= at]
    return f"after {_said(last[-1], storage, _DONE)}" if last else "before the save"


def _said(change: Change, storage: Storage, words: dict[str, str]) -> str:
    if change.kind == RENAME:
        text = "the rename to {}" if words is _DONE else "the rename to {} is lost"
        return text.format(_shown(change.to, storage))
    if change.kind == SIZE and change.offset:
        words = {SIZE: "the size of {} is set" if words is _DONE else "the new size of {} is lost"}
    return words[change.kind].format(_shown(change.path, storage))


def _shown(path: str, storage: Storage) -> str:
    return os.path.relpath(path, storage.root) if storage.is_inside(path) else path


def _names_missing(storage: Storage, left: Left) -> list[str]:
    lost = [one for one in storage.changed if left.until < one.at <= left.cut and one.kind != DATA]
    if not lost:
        return []
    first = next((one for one in lost if one.kind == RENAME), lost[0])
    more = (
        f", and {counted(len(lost) - 1, 'other change')} of names with it" if len(lost) > 1 else ""
    )
    return [_said(first, storage, _LOST) + more]


def _data_missing(storage: Storage, left: Left) -> list[str]:
    files = storage.unforced(left)
    names = {path: left.lost.get(storage.inode(path, left.until), "") for path in files}
    texts = []
    for how in (EMPTY, HALF, ZEROS):
        own = [path for path, one in names.items() if one == how]
        if own:
            few = own[0] if len(own) == 1 else ""
            what = _shown(few, storage) if few else f"{len(own)} files, {_shown(own[0], storage)} among them,"  # fmt: skip
            texts.append(f"{what} {_how(how, [storage.size(path, left) for path in own])}")
    return texts


def _how(how: str, sizes: list[int]) -> str:
    many = len(sizes) > 1
    if how == HALF:
        return "end at the half" if many else "ends at the half"
    if how == ZEROS:
        return "read as zeros in the middle" if many else "reads as zeros in the middle"
    if any(sizes):
        return "have none of the new data" if many else "has none of the new data"
    return "are empty" if many else "is empty"
