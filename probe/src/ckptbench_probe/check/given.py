"""Compares each file with what its save was given: one object for the process, which the hooks of `saving` share."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Callable

from ckptbench_probe.check.gate import Gate
from ckptbench_probe.check.history import History
from ckptbench_probe.check.judging import judge
from ckptbench_probe.check.optimizers import SEEN
from ckptbench_probe.check.state import digest, leaves
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS

Tensors = Iterable[tuple[Any, Any]]
"""Names, each a text or a text and an offset, and their tensors."""
Reader = Callable[["Given"], Tensors]
"""Loads what a save has written, by the engine's own reader."""
PLAIN = (str, bytes, int, float, complex, bool, type(None))
MOST_NAMES = 3
"""Names of torn tensors that are told."""


@dataclass(eq=False)
class Given:
    """What a save was given."""

    number: int
    kind: str
    path: str
    update: int = 0
    digests: dict[Any, str] | None = None
    """None until they are taken."""
    others: int = 0
    """Objects that are no tensors and no plain values."""
    trouble: str = ""
    """Why they could not be taken."""
    done: bool = False
    shapes: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    rank: int = 0
    """In the group of processes that save."""
    elsewhere: int = 0
    """Tensors that another rank has written, and compares."""


@dataclass(frozen=True)
class Offer:
    """The training's own tensors that one thread has handed to another: their digests by `id`, after an update.

    Other tensors, such as buffers, may be filled by the other thread: they are read when its save begins.
    """

    update: int
    digests: dict[int, str]


def is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


class Checker:
    def __init__(self) -> None:
        self.gate = Gate()
        self.history = History(SEEN)
        self._numbers = 0
        self._pending: dict[str, list[Given]] = defaultdict(list)
        self._local = threading.local()
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.gate = Gate()
        self._pending.clear()
        self._local, self._lock = threading.local(), threading.RLock()

    # Steps

    def before_step(self, optimizer: Any) -> None:
        if self.gate.before_step() and self.history.begins(optimizer):
            with self._lock:
                self.history.record()

    def after_step(self, optimizer: Any) -> None:
        self.gate.after_step()

    # Saves

    @property
    def inside(self) -> Given | None:
        """The save that this thread is inside of: what its engine calls to write is part of it."""
        return getattr(self._local, "given", None)

    @contextmanager
    def entered(self, given: Given | None) -> Iterator[None]:
        """An error that the engine raises is that of the save."""
        self._local.given = given
        try:
            yield
        except BaseException as error:
            self.failed(given, error)
            raise
        finally:
            self._local.given = None
            if given is not None and self.gate.on_stepping_thread:
                self.gate.returned(given.number)

    @harmless
    def begin(self, kind: str, path: str) -> Given:
        with self._lock:
            self._numbers += 1
            given = Given(self._numbers, kind, os.path.abspath(path), self.history.update)
        outer = PROCESS.saves.outermost
        PROCESS.trace.write(
            "given",
            save=given.number,
            kind=kind,
            path=given.path,
            checkpoint=outer.path if outer else given.path,
            update=given.update,
        )
        return given

    @harmless
    def offer(self, values: list[Any]) -> Offer | None:
        """What the thread that steps hands to another. None where it holds no memory that training changes, or an engine does it."""
        if not self.gate.on_stepping_thread or self.inside is not None:
            return None
        tensors = [one for value in values for _, one in leaves(value) if is_tensor(one)]
        live = {_memory(one) for one in SEEN.tensors().values()} if tensors else set()
        own = [one for one in tensors if _memory(one) in live - {None}]
        if not own:
            return None
        with self._lock:
            self.history.record()
            return Offer(self.history.update, {id(one): digest(one) for one in own})

    @contextmanager
    def offered(self, offer: Offer) -> Iterator[None]:
        self._local.offer = offer
        try:
            yield
        finally:
            self._local.offer = None

    @harmless
    def take(self, given: Given | None, tensors: Callable[[], Tensors]) -> None:
        """Keep the digests of what the save is given, while no step changes it. In the background, training goes on before the save does."""
        if given is None or given.digests is not None or given.trouble:
            return
        with self.gate.quiet() as reached, self._lock:
            given.update = self.history.update
            if not reached:
                given.trouble = "a step went on for a minute while the save waited for its end"
            else:
                try:
                    self.history.look_beside()
                    self.history.record()
                    given.digests = self._digests(given, tensors())
                except Exception as error:  # noqa: BLE001 - the save goes on, and is said to be unchecked
                    given.trouble = f"its tensors cannot be read ({_text(error)})"
        if not self.gate.on_stepping_thread:
            self.gate.returned(given.number)
            self.gate.hold(given.number)

    def _digests(self, given: Given, tensors: Tensors) -> dict[Any, str]:
        found = {}
        offer = getattr(self._local, "offer", None) or Offer(given.update, {})
        for name, value in tensors:
            if id(value) in offer.digests:
                given.update = offer.update
                found[name] = offer.digests[id(value)]
            elif is_tensor(value):
                try:
                    found[name] = digest(value)
                except Exception:  # noqa: BLE001 - of a kind whose bits cannot be read, such as without memory
                    given.others += 1
                    continue
            elif not isinstance(value, PLAIN):
                given.others += 1
                continue
            given.shapes[name] = tuple(getattr(value, "shape", ()))
        return found

    def goes_on(self, given: Given | None) -> None:
        """Another thread or process is to write it."""
        if given is not None:
            self._pending[given.path].append(given)

    def taken_up(self, path: str) -> Given | None:
        """The oldest save of this path that another thread has handed on. Held back until training has gone on."""
        waiting = self._pending.get(os.path.abspath(path))
        if not waiting or self.gate.on_stepping_thread:
            return None
        given = waiting.pop(0)
        harmless(self.gate.hold)(given.number)
        return given

    @harmless
    def let_step(self) -> None:
        """Hold a background thread until training has made a step, or waits for it."""
        if not self.gate.on_stepping_thread:
            self.gate.hold(self._numbers, after_s=0)

    @harmless
    def failed(self, given: Given | None, error: BaseException) -> None:
        self._tell(given, trouble=f"the save has failed ({_text(error)})")

    @harmless
    def written(self, given: Given | None, read: Reader) -> None:
        """The engine says that the save is finished."""
        if given is None or given.done:
            return
        if given.digests is None:
            self._tell(given, trouble=given.trouble or "what the save was given was not seen")
            return
        with self.gate.quiet(), self._lock:
            try:
                loaded = {name: digest(tensor) for name, tensor in read(given)}
            except Exception as error:  # noqa: BLE001 - whatever the reader says is told
                self._tell(given, trouble=f"its engine cannot read it ({_text(error)})")
                return
            self.history.record()
            found = judge(given.digests, loaded, self.history.snapshots)
        fields = {**asdict(found), "torn": [_shown(name) for name in found.torn[:MOST_NAMES]]}
        left = given.others + len(given.digests) - found.compared - given.elsewhere
        self._tell(given, **fields, torn_number=len(found.torn), not_compared=left)

    def _tell(self, given: Given | None, **fields: Any) -> None:
        if given is None or given.done:
            return
        given.done = True
        PROCESS.trace.write("checked", save=given.number, update_given=given.update, **fields)


CHECKER = Checker()


def _memory(tensor: Any) -> int | None:
    """Where its values lie: the same for all views of one tensor."""
    storage = getattr(getattr(tensor, "_local_tensor", tensor), "untyped_storage", None)
    return None if storage is None else int(storage().data_ptr()) or None


def _shown(name: Any) -> str:
    return name if isinstance(name, str) else str(name[0])


def _text(error: BaseException) -> str:
    """One line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:200]}" if said else type(error).__name__
