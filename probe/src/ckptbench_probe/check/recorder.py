"""Write the digests of a training's state after each update, and end the training by SIGKILL after the one that END_AT or END_BEFORE names.

The state before the first update of a process is written as well: it is what was restored. So is what has changed between two updates, and after the last one.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn

from ckptbench_probe.check import meeting, stopping
from ckptbench_probe.check.killing import ENDED, killer
from ckptbench_probe.check.parts import part
from ckptbench_probe.check.processes import end_below
from ckptbench_probe.check.state import SLOT, digest, random_states
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import END_AT, END_BEFORE, PARTS, STOP_AT, seat

BEGIN, UPDATED, SAVED = "state_at_begin", "state_after_update", "state_in_save"
BETWEEN = "state_before_update"
"""Before the next update, or at the end of the process."""
RESTORED = "random_state_restored"
MOST_OPTIMIZERS = 4
"""Whose state at their first step is written."""
STEP = f"{SLOT}step"


@dataclass(frozen=True)
class Now:
    """The state of a training at this moment, not copied."""

    tensors: Iterable[tuple[str, Any]]
    rates: list[float] = field(default_factory=list)
    step: int | None = None
    """Updates since the training began, across restarts, where the state tells."""
    random: dict[str, Any] = field(default_factory=dict)
    """Random states of the framework, beside those that every process has."""
    left_out: bool = False
    """Whether a scaler has told the optimizer to leave this update out."""


Beside = Callable[[bool], "dict[str, list[str]]"]
"""The digests of what lives beside the model, by name. Called with whether to look for what is new, which takes a tenth of a second."""


def _no_beside(_: bool) -> dict[str, list[str]]:
    return {}


class Recorder:
    """Counts the updates that were made: one that a scaler leaves out, or that changes nothing, is none."""

    def __init__(self) -> None:
        self.made = 0
        self.saved = False
        """Since the last look beside the model."""
        self.batches: list[str] = []
        """Digests of what the model was given since the last update; empty where nothing records it."""
        self.thread: int | None = None
        """That updates."""
        self._begun = False
        self._stopped = False
        self._done = 0
        self._open = False
        """Whether an update was made whose state before the next one is not written yet."""
        self._looks = 0
        self._joined: set[int] = set()
        self._digests: dict[str, str] = {}
        self._last: tuple[Callable[[], Now], Beside] | None = None
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.made, self.saved, self.batches = 0, False, []
        self._begun, self._done, self._open, self._looks = False, 0, False, 0
        self._digests, self._last, self.thread, self._joined = {}, None, None, set()
        self._stopped = False

    def before(
        self,
        begin: Callable[[], Now],
        now: Callable[[], Now],
        beside: Beside = _no_beside,
        who: int = 0,
    ) -> None:
        """Before each update. `begin`: the state before the first one, or before that of a further optimizer, which is `who`."""
        if self._open and self.made >= _limit(END_BEFORE):
            self._between(now, beside, at_end=False)
            _end(PROCESS.trace.folder)
        self._stop()
        is_new = who not in self._joined
        self._joined.add(who)
        if not self._begun:
            self._begun, self.thread = True, threading.get_ident()
            self._at_begin(begin(), beside)
            self._see_the_end(now, beside)
        elif self._open:
            self._between(now, beside, at_end=False)
        if is_new and self.made and len(self._joined) <= MOST_OPTIMIZERS:
            self._joins(begin)

    @harmless
    def _at_begin(self, now: Now, beside: Beside) -> None:
        self._digests = _digests(now)
        self._write(BEGIN, now, self._digests, beside=harmless(beside)(self._looks_now()) or {})

    @harmless
    def _joins(self, begin: Callable[[], Now]) -> None:
        now = begin()
        self._write(BEGIN, now, _digests(now))

    def updated(self, now: Now) -> None:
        """An update has ended."""
        own = harmless(killer)()
        if own is not None:
            harmless(own.updated)()
        done = PROCESS.updates.done
        if done <= self._done:
            return
        self._begun, self._done, self.thread = True, done, threading.get_ident()
        if now.left_out:
            return
        digests = harmless(_digests)(now)
        if digests is not None and self._changes_nothing(digests):
            return
        self.made += 1
        self._open = True
        if digests is not None:
            self._digests = digests
            harmless(self._write)(
                UPDATED,
                now,
                digests,
                done=done,
                backwards=PROCESS.updates.backwards,
                batches=self.batches,
            )
        self.batches = []
        PROCESS.updates.write()
        if self.made >= min(_limit(END_AT), _limit(END_BEFORE) + 1):
            _end(PROCESS.trace.folder)
        if self._last is None:  # nothing calls before an update
            self._stop()

    def _stop(self) -> None:
        """Once, where this training is to be stopped by a signal: it comes while the next update is computed, as nearly every signal does."""
        if not self._stopped and self.made >= _limit(STOP_AT):
            self._stopped = True
            harmless(stopping.await_signal)(self.made, self.thread)

    def _changes_nothing(self, digests: dict[str, str]) -> bool:
        """As of an optimizer that counts its steps, and has not: no parameter had a gradient, or a fused kernel has left it out."""
        trained = {name.partition(SLOT)[0] for name in digests if name.endswith(STEP)}
        own = [name for name in digests if name.partition(SLOT)[0] in trained]
        return bool(own) and all(self._digests.get(name) == digests[name] for name in own)

    @harmless
    def _between(self, now: Callable[[], Now], beside: Beside, *, at_end: bool) -> None:
        self._open = False
        found = _digests(now())
        changed = {name: one for name, one in found.items() if self._digests.get(name) != one}
        self._digests.update(changed)
        PROCESS.trace.write(
            BETWEEN,
            update=self.made,
            rank=own_rank(),
            tensors=changed,
            beside=harmless(beside)(self._looks_now() or at_end) or {},
            at_end=at_end,
        )

    def _looks_now(self) -> bool:
        """At the first updates of a process, and after each save."""
        self._looks += 1
        due, self.saved = self.saved or self._looks <= 3, False
        return due

    def _see_the_end(self, now: Callable[[], Now], beside: Beside) -> None:
        if self._last is None:
            atexit.register(self._at_exit)
            util = sys.modules.get("multiprocessing.util")
            if util is not None:  # its children end without `atexit`
                util.Finalize(None, self._at_exit, exitpriority=1)
        self._last = (now, beside)

    def _at_exit(self) -> None:
        """What the program still has of its state then."""
        if self._open and self._last is not None:
            self._between(*self._last, at_end=True)

    def _write(self, event: str, now: Now, digests: dict[str, str], **more: Any) -> None:
        PROCESS.trace.write(
            event,
            update=self.made,
            rank=own_rank(),
            step=now.step,
            tensors=digests,
            random={
                **random_states(),
                **{name: digest(state) for name, state in now.random.items()},
            },
            rates=now.rates,
            **more,
        )


def _digests(now: Now) -> dict[str, str]:
    of = part if os.environ.get(PARTS) else digest
    return {name: of(tensor) for name, tensor in now.tensors}


def _limit(variable: str) -> float:
    return float(os.environ.get(variable) or "inf")


def own_rank() -> int:
    own = seat()
    return own.rank if own else 0


def _end(folder: str) -> NoReturn:
    """All ranks after the same update. The processes that this one has started end first: none may finish a save after the kill."""
    meeting.meet(os.path.join(folder, ENDED))
    end_below(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlives no SIGKILL")


RECORDER = Recorder()
