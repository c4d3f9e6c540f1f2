"""What two runs were compared in, and what they were not."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ckptbench_probe.check.compare import Ranks, sides
from ckptbench_probe.check.states import State

NAMED = 3
"""That are named in one line."""
LOOKED_AT = 4096
"""Bytes of a file: a text has no zero among them."""
LIVE = "written by a thread, without a copy, from what training changes"
RECORDS = "tfevents"
"""In the names of binary files that hold no state."""


@dataclass(frozen=True)
class Extent:
    """Numbers of one rank, the one with most."""

    tensors: int
    beside: int
    saved: int
    not_compared: tuple[str, ...]
    """A reason each, and what it holds for."""


def listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:NAMED]) + (", ..." if len(shown) > NAMED else "")


def extent(whole: Ranks, again: Ranks, start: int, last: int, ignored: frozenset[str]) -> Extent:
    """Of the updates after `start` until `last`."""
    tensors = beside = saved = 0
    left: dict[str, dict[str, None]] = {}
    for rank, one in whole.items():
        other = again[rank]
        pairs = [
            (a, b)
            for n in range(start + 1, last + 1)
            if (a := one.at(n)) and (b := other.at(n - start))
        ]
        tensors = max([tensors, *(len(a.tensors.keys() & b.tensors.keys()) for a, b in pairs)])
        both = sides(one, other, start)
        seen = {name for n in range(start + 1, last + 1) for name in both.compared(n)}
        beside = max(beside, len(seen & both.moved(last) - ignored))
        found = {name for a, b in pairs for name in a.saved.keys() & b.saved.keys()} - ignored
        saved = max(saved, len(found))
        alone = {n for n in both.moved(last) if not any(one.endswith(n) for one in seen)}
        missed = alone, both.still(last) & seen
        for reason, names in _left(pairs, *missed, found, ignored):
            left.setdefault(reason, {}).update(dict.fromkeys(names))
        left.setdefault(LIVE, {}).update(dict.fromkeys(sorted(one.live | other.live)))
    lines = tuple(f"{listed(names)} ({reason})" for reason, names in left.items() if names)
    return Extent(tensors, beside, saved, lines)


def _left(
    pairs: list[tuple[State, State]],
    of_one: set[str],
    still: set[str],
    saved: set[str],
    ignored: frozenset[str],
) -> Iterator[tuple[str, Iterable[str]]]:
    yield "beside the model in one run only", sorted(of_one - ignored)
    yield (
        "beside the model, with another value that no update has changed since the resume",
        sorted(still - ignored),
    )
    ended = [(a, b) for a, b in pairs if a.ends and b.ends] or pairs
    names = {name for a, b in ended for name in (*a.saved, *b.saved)} - saved - ignored
    yield (
        "saved by one run only, or of other updates",
        sorted({name.partition(": ")[0] for name in names}),
    )
    own = {name for a, b in pairs for name in (*a.saved, *b.saved, *a.beside, *b.beside)} & ignored
    yield "which differ between two undisturbed runs", sorted(own)


def unread(
    folder: Path, noted: Iterable[str], *, since: float = 0.0, below: bool = True
) -> tuple[str, ...]:
    """Binary files in a folder, and below it, that no engine was seen to write, and that were changed since then, in seconds since 1970."""
    known = tuple(map(os.path.realpath, noted))
    real = Path(os.path.realpath(folder))
    found = sorted(real.rglob("*") if below else real.glob("*"))
    files = (path for path in found if _is_newer(path, since))
    return tuple(
        str(path.relative_to(real))
        for path in files
        if RECORDS not in path.name
        and not any(str(path) == one or str(path).startswith(one + os.sep) for one in known)
        and b"\0" in _begin(path)
    )


def _is_newer(path: Path, since: float) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False  # it is gone
    return stat.S_ISREG(status.st_mode) and status.st_mtime >= since


def _begin(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LOOKED_AT)
    except OSError:
        return b""  # it is gone, or of another user: nothing can be said of it
