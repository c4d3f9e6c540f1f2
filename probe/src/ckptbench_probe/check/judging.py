"""Whether a file holds what the save was given, and of which update that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ckptbench_probe.check.handed import digest_of
from ckptbench_probe.check.history import History, Snapshot
from ckptbench_probe.check.one_save import Given, Reader
from ckptbench_probe.harmless import is_of_training, text_of
from ckptbench_probe.stores import UnreadableError


@dataclass(frozen=True)
class Found:
    """In one file, or in the part of it that one rank has written."""

    compared: int
    """Tensors that are both in the file and in what the save was given."""
    values: int
    """Numbers, texts and lists of them that are in both."""
    shared: frozenset[Any]
    """The names of both."""
    torn: tuple[Any, ...]
    """Of these, those that differ."""
    torn_of: dict[str, int]
    """How many of them have the value of which update; `mixed`: of none. Without those whose right value is of no update either, as it is small or a cast."""
    updates: tuple[int, ...]
    """Whose state the others are, where several have the same; empty where no value tells."""
    several: dict[str, int]
    """Parameters and slots by the update whose value they have, where no update has the value of all."""


MIXED = "mixed"
MOST_NAMES = 3
"""Names of one kind that are told."""
OVERWRITTEN = "another save has overwritten it before it could be read"


def compare(given: Given, read: Reader, others: Sequence[Given], history: History) -> Found | str:
    """What the file holds beside what the save was given, or why that cannot be told. `others`: saves of the same path."""
    try:
        loaded = {name: digest_of(value) for name, value in read(given)}
    except BaseException as error:
        if is_of_training(error):
            raise
        if isinstance(error, UnreadableError):
            return str(error)
        return OVERWRITTEN if others else f"its engine cannot read it ({text_of(error)})"
    digests = given.digests or {}
    found = judge(digests, loaded, history.snapshots, given.shapes)
    if found.torn:  # perhaps of an update that has just been
        history.record()
        found = judge(digests, loaded, history.snapshots, given.shapes)
    by_others = [
        {loaded[name]} & {(one.digests or {}).get(name) for one in others} for name in found.torn
    ]
    return OVERWRITTEN if by_others and all(by_others) else found


def told(given: Given, found: Found) -> dict[str, Any]:
    """What the trace says of it."""
    if given.elsewhere:
        left = dict(given.others)  # another rank compares the rest
    else:
        not_shared = [name for name in given.digests or () if name not in found.shared]
        left = {**dict.fromkeys(not_shared, "not read"), **given.others}
    first = list(left)[:MOST_NAMES]
    fields = {**asdict(found), "torn": given.names(found.torn[:MOST_NAMES])}
    del fields["shared"]
    said = [
        f"{name} ({left[key]})" if name else left[key]
        for key, name in zip(first, given.names(first))
    ]
    return {
        **fields, "torn_number": len(found.torn), "not_compared": len(left), "left": said, "as_given": given.as_given,
    }  # fmt: skip


def judge(
    given: Mapping[Any, str],
    loaded: Mapping[Any, str | None],
    snapshots: Sequence[Snapshot],
    tensors: Collection[Any] | None = None,
) -> Found:
    """`given` and `loaded`: digests by name. `tensors`: the names of those that are no plain values; all if None."""
    both = {name: text for name, text in loaded.items() if name in given and text is not None}
    shared = [name for name in given if name in both]
    compared = len(shared) if tensors is None else sum(name in tensors for name in shared)
    torn = [name for name in shared if both[name] != given[name]]
    fits = {both[name] for name in shared} - {both[name] for name in torn}
    telling = [name for name in torn if any(given[name] in one.names for one in snapshots)]
    updates, several = _whole(fits, snapshots)
    return Found(
        compared=compared,
        values=len(shared) - compared,
        shared=frozenset(shared),
        torn=tuple(torn),
        torn_of=_of_updates([both[name] for name in telling], snapshots),
        updates=updates,
        several=several,
    )


def _of_updates(values: list[str], snapshots: Sequence[Snapshot]) -> dict[str, int]:
    """As few updates as explain all values, the one that explains most first."""
    found: Counter[str] = Counter()
    left = list(values)
    while left:
        held = [sum(value in one.names for value in left) for one in snapshots]
        most = max(held, default=0)
        if not most:
            found[MIXED] += len(left)
            break
        best = snapshots[held.index(most)]
        found[str(best.update)] += most
        left = [value for value in left if value not in best.names]
    return dict(found)


def _whole(
    values: set[str], snapshots: Sequence[Snapshot]
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The updates whose state the file has, else how many of its parameters and slots are of which update.

    A file may have older values as well, as of a target network: it is whole as long as it has the newer ones of the same names too.
    """
    names: dict[str, set[str]] = {}
    for one in snapshots:
        for value in values & one.names.keys():
            names.setdefault(value, set()).update(one.names[value])
    if not names:
        return (), {}
    held = [set().union(*(one.names.get(value, ()) for value in names)) for one in snapshots]
    whole = {
        one.update
        for one, here in zip(snapshots, held)
        if all(value in one.names or not here.isdisjoint(names[value]) for value in names)
    }
    return tuple(sorted(whole)), {} if whole else _of_updates(list(names), snapshots)
