"""Compares each file with what its save was given: one object for the process, which the hooks of `saving` share."""

from __future__ import annotations

import functools
import os
import threading
from collections import defaultdict
from typing import Any, Callable

from ckptbench_probe import storage, stores
from ckptbench_probe.check.gate import Gate
from ckptbench_probe.check.handed import Fixed, HandedOver, digest_of
from ckptbench_probe.check.history import History
from ckptbench_probe.check.judging import Found, compare, told
from ckptbench_probe.check.one_save import CannotTellError, Given, Late, Reader, Values, weakly
from ckptbench_probe.check.optimizers import SEEN
from ckptbench_probe.check.trees import is_plain, is_tensor, paths
from ckptbench_probe.engines.calls import Call
from ckptbench_probe.files import after_rename
from ckptbench_probe.harmless import harmless, is_of_training, text_of
from ckptbench_probe.process import PROCESS

SAME_PATH = 8
"""Saves of one path whose values are kept, as one may overwrite another."""
NEVER_WHOLE = (
    "the save has failed: its file was not whole when the save returned, and is gone since"
)
NOT_STORED = "its upload was not finished: the store has no object of it, or an older one"
UNSEEN = "another thread began to save the state of update {older} only after update {now}, and how it was handed over was not seen: it may be torn"


class Checker:
    """All that hooks call goes through the fence of `harmless`."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.history = History(SEEN)
        self.handed = HandedOver(SEEN, self.history)
        self._numbers = 0
        self._pending: dict[str, list[Given]] = defaultdict(list)
        self._of_path: dict[str, list[Given]] = defaultdict(list)
        self._late: list[Late] = []
        self._local = threading.local()
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renew)
        PROCESS.before_end.append(lambda: self.look_again(last=True))
        PROCESS.saves.on_rename(self._renamed)
        PROCESS.saves.on_stored(
            self.look_again
        )  # at the end of a process, clients of stores no longer work

    def _renew(self) -> None:
        self.gate = Gate()
        self._pending.clear()
        self._of_path.clear()
        self._late.clear()
        self._local, self._lock = threading.local(), threading.RLock()

    # Steps

    def before_step(self, optimizer: Any) -> None:
        if self._late:
            self.look_again()
        if self.gate.before_step() and self.history.begins(optimizer):
            with self._lock:
                self.history.record()

    def after_step(self, optimizer: Any) -> None:
        self.gate.after_step()

    @harmless
    def between_steps(self) -> None:
        """Where steps cannot be seen from within."""
        if self._late:
            self.look_again()
        self.gate.before_step()
        self.gate.after_step()

    # Saves

    @property
    def inside(self) -> Given | None:
        """The save that this thread is inside of: what its engine calls to write is part of it."""
        return getattr(self._local, "given", None)

    def around(
        self,
        original: Call,
        begin: Callable[[Any, Any], Given | None],
        ended: Callable[[Given, Any, Any, Any], Any] | None = None,
    ) -> Call:
        """Around a call that saves. `begin` is given its arguments, `ended` what it has returned too. An error that it raises is that of the save."""
        begun, heard = harmless(begin), harmless(ended) if ended else None

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            given = begun(args, kwargs)
            if given is None:
                return original(*args, **kwargs)
            self._local.given = given
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self.failed(given, error)
                raise
            finally:
                self._left(given)
            if heard is not None:
                heard(given, result, args, kwargs)
            return result

        return save

    @harmless
    def _left(self, given: Given) -> None:
        self._local.given = None
        if self.gate.on_stepping_thread:
            self.gate.returned(given.number)

    @harmless
    def begin(self, kind: str, path: str) -> Given:
        whole = storage.place(path)
        with self._lock:
            self._numbers += 1
            given = Given(self._numbers, kind, whole, self.history.update, PROCESS.updates.done)
            self._of_path[whole] = [*self._of_path[whole][-SAME_PATH:], given]
        outer = PROCESS.saves.outermost
        PROCESS.trace.write(
            "given",
            save=given.number,
            kind=kind,
            path=given.path,
            checkpoint=outer.path if outer else given.path,
            update=given.update,
            done=given.done,
        )
        return given

    @harmless
    def hand(self, values: list[Any]) -> None:
        """The thread that steps hands this to another, unless an engine does it."""
        if self.gate.on_stepping_thread and self.inside is None and not self.gate.in_step():
            with self._lock:
                self.handed.add(values)

    @harmless
    def made(self, state: Any) -> None:
        if self.gate.on_stepping_thread:
            self.handed.made(state)

    def parts(self, value: Any) -> Values:
        """What a state holds; on another thread, as it was handed over."""
        return paths(value) if self.gate.on_stepping_thread else self.handed.parts(value)

    @harmless
    def take(self, given: Given | None, values: Callable[[], Values]) -> None:
        """Keep the digests of what the save is given, while no step changes it. In the background, training goes on before the save does."""
        if given is None or given.digests is not None or given.trouble:
            return
        with self.gate.quiet() as reached, self._lock:
            given.update, given.done = self.history.update, PROCESS.updates.done
            if not reached:
                given.trouble = "a step went on for a minute while the save waited for its end"
            else:
                try:
                    self.history.look_beside()
                    self.history.record()
                    given.digests = self._digests(given, values())
                except CannotTellError as error:
                    given.trouble = str(error)
                except BaseException as error:
                    if is_of_training(error):
                        raise
                    given.trouble = f"the tensors passed to it cannot be read ({text_of(error)})"
        if not self.gate.on_stepping_thread:
            self.gate.returned(given.number)
            self.gate.hold(given.number)

    def _digests(self, given: Given, values: Values) -> dict[Any, str]:
        found: dict[Any, str] = {}
        in_background = not self.gate.on_stepping_thread
        given.at_begin = in_background
        fixed = []
        for name, value, *hand in values:
            if hand and hand[0] is not None:
                given.update, given.done, given.at_begin = hand[0].update, hand[0].done, False
            fixed.append(isinstance(value, Fixed))
            older = self.handed.older(value) if in_background and is_tensor(value) else None
            if older is not None:
                now, (given.update, given.done) = given.update, older
                raise CannotTellError(UNSEEN.format(older=given.update, now=now))
            text = digest_of(value)
            if text is None:
                given.others[name] = type(value).__name__
                continue
            found[name] = text
            if not is_plain(value) and not (isinstance(value, Fixed) and value.is_plain):
                given.shapes[name] = tuple(value.shape)
        given.as_given = not in_background or (bool(fixed) and all(fixed))
        return found

    @harmless
    def goes_on(self, given: Given | None) -> None:
        """Another thread or process is to write it."""
        if given is not None:
            self._pending[given.path].append(given)

    @harmless
    def taken_up(self, path: str) -> Given | None:
        """The oldest save of this path that another thread has handed on. Held back until training has gone on."""
        waiting = self._pending.get(storage.place(path))
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
        self._tell(given, trouble=f"the save has failed ({text_of(error)})")

    @harmless
    def written(self, given: Given | None, read: Reader, file: Any = None) -> None:
        """The engine says that the save is finished. `file`: an object that it has written to, which may keep some of it until it is closed."""
        if given is None or given.told:
            return
        write = stores.open_at(given.path)
        if write is not None:
            with self._lock:
                self._late.append(Late(given, read, weakly(file), write))
            return
        found = self._compare(given, read)
        if file is not None and (isinstance(found, str) or found.torn):
            with self._lock:
                self._late.append(Late(given, read, weakly(file)))
            return
        self._judged(given, found)

    @harmless
    def look_again(self, *, last: bool = False) -> None:
        """At files that were not whole when their saves returned. `last`: the process ends."""
        with self._lock:
            due = [one for one in self._late if last or not one.is_open]
            self._late = [one for one in self._late if one not in due]
        for one in due:
            if one.write is not None and not one.write.stored:
                self._judged(one.given, NOT_STORED)
            elif one.write is not None or os.path.lexists(one.given.path):
                self._judged(one.given, self._compare(one.given, one.read))
            else:
                self._judged(one.given, NEVER_WHOLE)

    def _renamed(self, source: str, target: str) -> None:
        for one in self._late:
            one.given.path = after_rename(one.given.path, source, target)

    def _compare(self, given: Given, read: Reader) -> Found | str:
        """Or why it cannot be compared."""
        if given.digests is None:
            return given.trouble or "the tensors passed to the save were not seen"
        with self.gate.quiet(), self._lock:
            others = [
                one
                for one in self._of_path[given.path]
                if one is not given and (one.number > given.number or not one.told)
            ]
            return compare(given, read, others, self.history)

    def _judged(self, given: Given, found: Found | str) -> None:
        if isinstance(found, str):
            self._tell(given, trouble=found)
        else:
            self._tell(given, **told(given, found))

    def _tell(self, given: Given | None, **fields: Any) -> None:
        if given is None or given.told:
            return
        given.told = True
        PROCESS.trace.write(
            "checked", save=given.number, update_given=given.update, done=given.done, at_begin=given.at_begin, **fields
        )  # fmt: skip


CHECKER = Checker()
