"""What the thread that steps has handed to another thread, as it was then: a save there is given this, however late it begins.

Nothing here keeps a tensor alive, so the training needs no more memory.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ckptbench_probe.check.history import History
from ckptbench_probe.check.memory import Memory
from ckptbench_probe.check.state import Optimizers, digest
from ckptbench_probe.check.trees import Path, children, is_plain, is_tensor, paths
from ckptbench_probe.process import PROCESS

KEPT = 64
"""Hand-overs that no save has taken."""
MOST_VALUES = 50_000
"""Of a dict or list: one with more is a data set, and no state."""


@dataclass(frozen=True)
class Was:
    """A value when it was handed over."""

    digest: str
    shape: tuple[int, ...] | None
    """None of a plain value."""
    refer: Any
    """A weak reference to a tensor, the plain value itself."""
    is_own: bool
    """Whether it is memory that training changes."""

    def is_of(self, value: Any) -> bool:
        return is_tensor(value) and self.shape is not None and self.refer() is value


@dataclass(frozen=True)
class Fixed:
    """Stands for a value that a save was given earlier."""

    digest: str
    shape: tuple[int, ...]
    is_plain: bool


def digest_of(value: Any) -> str | None:
    """None of an object, and of a tensor whose bits cannot be read, such as one without memory."""
    if isinstance(value, Fixed):
        return value.digest
    if not is_tensor(value) and not is_plain(value):
        return None
    try:
        return digest(value)
    except Exception:  # noqa: BLE001 - it is said to be not compared
        return None


@dataclass
class Hand:
    """One hand-over: values by the id of each dict and list, and of each tensor."""

    update: int
    done: int
    trees: dict[int, list[tuple[Path, Was]]] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    """Dicts and lists without a tensor: they are small, and cannot be referred to weakly."""
    tensors: dict[int, Was] = field(default_factory=dict)


class HandedOver:
    def __init__(self, optimizers: Optimizers, history: History) -> None:
        self._optimizers = optimizers
        self._history = history
        self._hands: deque[Hand] = deque(maxlen=KEPT)
        self._made: dict[int, tuple[Any, tuple[int, int]]] = {}

    def add(self, values: list[Any]) -> None:
        reached = [one for value in values for one in _reached(value) if _is_state(one)]
        if not reached or not self._optimizers.alive():
            return
        self._history.record()
        hand = Hand(self._history.update, PROCESS.updates.done)
        memory = Memory(self._optimizers)
        for one in reached:
            self._walk(one, hand, memory)
        for other in self._hands:
            if other.done == hand.done:  # as by a pool, which has a queue
                for of_hand, of_other in (hand.trees, other.trees), (hand.tensors, other.tensors):
                    for key in of_hand.keys() & of_other.keys():
                        del of_other[key]
        self._hands.append(hand)

    def _walk(self, value: Any, hand: Hand, memory: Memory) -> list[tuple[Path, Was]]:
        parts = None if is_plain(value) else children(value)
        if parts is None:
            was = hand.tensors.get(id(value)) or _was(value, memory)
            if was is not None and was.shape is not None and id(value) not in memory.objects:
                hand.tensors[id(value)] = was
            return [] if was is None else [((), was)]
        found = [
            ((key, *path), was)
            for key, part in parts
            for path, was in self._walk(part, hand, memory)
        ]
        if id(value) not in memory.containers:
            hand.trees[id(value)] = found
            if all(was.shape is None for _, was in found):
                hand.kept.append(value)
        return found

    def made(self, state: Any) -> None:
        """A model has said its state, which may come to another thread in a way that is not seen."""
        now = self._history.update, PROCESS.updates.done
        for _, tensor in paths(state):
            if is_tensor(tensor):
                forget = functools.partial(self._forget_made, id(tensor))
                self._made[id(tensor)] = weakref.ref(tensor, forget), now

    def _forget_made(self, key: int, _: Any) -> None:
        self._made.pop(key, None)

    def older(self, value: Any) -> tuple[int, int] | None:
        """The update, and the updates of this process, after which a model has said this to be its state, if it has trained since."""
        refer, made = self._made.get(id(value), (None, (0, 0)))
        if refer is None or refer() is not value or made[1] == PROCESS.updates.done:
            return None
        return made if Memory(self._optimizers).holds(value) else None

    def parts(self, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Hand | None]]:
        """What `value` holds, and of which hand-over. A hand-over of a dict, a list or a tensor serves one save."""
        hand = self._of_container(value)
        if hand is not None:
            was = dict(hand.trees[id(value)])
            _forget(value, hand)
            for below, now in paths(value):
                known = was.get(below)
                yield (*path, *below), self._then(now, known, hand), hand if known else None
            return
        inside = None if is_plain(value) else children(value)
        if inside is not None:
            for key, part in inside:
                yield from self.parts(part, (*path, key))
            return
        for hand in self._hands:
            if id(value) in hand.tensors and hand.tensors[id(value)].is_of(value):
                yield path, self._then(value, hand.tensors.pop(id(value)), hand), hand
                return
        yield path, value, None

    def _of_container(self, value: Any) -> Hand | None:
        """The oldest hand-over of this dict or list that no save has taken."""
        if children(value) is None:
            return None
        for hand in self._hands:
            if id(value) not in hand.trees:
                continue
            tree = dict(hand.trees[id(value)])
            if any(one is value for one in hand.kept) or any(
                path in tree and tree[path].is_of(leaf) for path, leaf in paths(value)
            ):
                return hand
        return None

    def _then(self, now: Any, was: Was | None, hand: Hand) -> Any:
        """The value that counts. A thread may fill buffers that it was handed, with the state of that update; later values came too late."""
        if was is None:
            return now
        fixed = Fixed(was.digest, was.shape or (), was.shape is None)
        if was.shape is None or was.is_own or digest(now) == was.digest:
            return fixed
        known = {one.update for one in self._history.snapshots if digest(now) in one.names}
        return fixed if known and hand.update not in known else now


def _is_state(value: Any) -> bool:
    found = [leaf for _, leaf in islice(paths(value), MOST_VALUES + 1)]
    return len(found) <= MOST_VALUES and any(map(is_tensor, found))


def _was(value: Any, memory: Memory) -> Was | None:
    if is_plain(value):
        return Was(digest(value), None, value, False)
    if not is_tensor(value):
        return None
    shape = tuple(value.shape)
    return Was(digest(value), shape, weakref.ref(value), memory.holds(value))


def _forget(value: Any, hand: Hand) -> None:
    """A save has taken it, with all that is in it."""
    hand.trees.pop(id(value), None)
    hand.tensors.pop(id(value), None)
    for _, part in children(value) or ():
        if children(part) is not None or is_tensor(part):
            _forget(part, hand)


def _reached(value: Any) -> Iterator[Any]:
    """Dicts, lists and tensors: the value itself, and what a call or an object of the program has, also as a part of it."""
    if _holds(value):
        yield value
        for _, part in () if is_plain(value) else children(value) or ():
            yield from filter(_holds, _inside(part))
    else:
        yield from filter(_holds, _inside(value))


def _holds(value: Any) -> bool:
    return children(value) is not None or is_tensor(value)


def _inside(value: Any) -> Iterator[Any]:
    """Of a function what it has from where it was made, of a method and of an object of the program its attributes. No code of theirs runs."""
    if isinstance(value, functools.partial):
        yield from (*value.args, *value.keywords.values())
        yield from _inside(value.func)
    elif type(value) is MethodType:
        yield from _inside(value.__self__)
    elif type(value) is FunctionType:
        yield from value.__defaults__ or ()
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # it is empty yet
                yield cell.cell_contents
                yield from (
                    vars(cell.cell_contents).values() if _is_object(cell.cell_contents) else ()
                )
    elif _is_object(value):
        yield from vars(value).values()


def _is_object(value: Any) -> bool:
    """With attributes; no function, type, module or model."""
    kind = type(value)
    plain = issubclass(kind, (type, ModuleType, FunctionType)) or hasattr(kind, "state_dict")
    return not plain and hasattr(value, "__dict__")
