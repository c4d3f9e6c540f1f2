"""Keeps training out of a step while another thread reads its state, and a background write back until training has gone on.

Both are orders in which the threads may run anyhow: what is sound stays sound, and a save that needs luck has none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from time import monotonic, sleep
from types import FrameType

LONGEST_STEP_S = 60.0
"""A thread that reads waits for the end of a step for so long at most, and a step for those that read."""
YIELD_S = 0.01
"""Training rests so long before a step, so that a thread that it has started begins its save after the same update."""
LOOK_S = 0.05
AFTER_S = 2.0
"""A background write is held back for so long, so that the next save may begin before it."""
LONGEST_HOLD_S = 10.0
"""Without a step; where steps take long, so many times the longest time between two:"""
LONGEST_GAPS = 3
LOOKS_WAITING = 5
"""Looks that find the thread that steps at the same place of a module of WAITING: it waits for the write."""
WAITING = ("threading", "queue", "concurrent.futures._base", "concurrent.futures.thread")
STEP = os.path.join("torch", "optim", "optimizer.py")
STEP_NAME = "wrapper"
"""End of the file, and part of the name, of the function that PyTorch puts around each step."""


class Gate:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._depth = 0
        self._readers = 0
        self._steps = 0
        self._ended_s = monotonic()
        self._longest_s = 0.0
        self._held_s = 0.0
        """That a background thread was held back since the last step: training may have waited for it."""
        self._newest = 0
        self._thread = threading.main_thread().ident

    @property
    def on_stepping_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def before_step(self) -> bool:
        """Whether this step is the outermost."""
        if not self._depth:
            sleep(YIELD_S)
        with self._changed:
            outermost = self._steps_on_stack(threading.get_ident()) < 2 or not self._depth
            if outermost:
                self._depth = 0
                self._changed.wait_for(lambda: not self._readers, LONGEST_STEP_S)
            self._thread = threading.get_ident()
            self._depth += 1
            return outermost

    def after_step(self) -> None:
        with self._changed:
            self._depth = max(0, self._depth - 1)
            if not self._depth:
                self._steps += 1
                before_s, self._ended_s = self._ended_s, monotonic()
                if self._steps > 1:
                    gap_s = self._ended_s - before_s - self._held_s
                    self._longest_s = max(self._longest_s, gap_s)
                self._held_s = 0.0
            self._changed.notify_all()

    def in_step(self) -> bool:
        """A step that has raised an error was not ended by its hook: the stack tells."""
        if self._depth and not self._steps_on_stack(self._thread):
            self._depth = 0
        return self._depth > 0

    def _steps_on_stack(self, thread: int | None) -> int:
        return sum(
            frame.f_code.co_filename.endswith(STEP) and STEP_NAME in frame.f_code.co_name
            for frame in _stack(thread)
        )

    @contextmanager
    def quiet(self) -> Iterator[bool]:
        """Meanwhile no step begins. False where the step that is under way did not end."""
        with self._changed:
            self._readers += 1
        try:
            with self._changed:
                reached = self.on_stepping_thread or self._changed.wait_for(
                    lambda: not self.in_step(), LONGEST_STEP_S
                )
            yield reached
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def returned(self, number: int) -> None:
        """The save of this number has given control back to the program."""
        with self._changed:
            self._newest = max(self._newest, number)
            self._changed.notify_all()

    def hold(self, number: int, after_s: float = AFTER_S) -> None:
        """Hold this background thread until training has made a step and `after_s` have passed, or a later save has returned.

        It goes on at once where training waits for it, and after LONGEST_HOLD_S at the latest.
        """
        begun = monotonic()
        self._hold(number, after_s)
        with self._changed:
            self._held_s += monotonic() - max(begun, self._ended_s)

    def _hold(self, number: int, after_s: float) -> None:
        begun, steps, places = monotonic(), self._steps, []
        while monotonic() - begun < max(LONGEST_HOLD_S, LONGEST_GAPS * self._longest_s):
            with self._changed:
                self._changed.wait(LOOK_S)
                stepped, later = self._steps > steps, self._newest > number
                places.append(None if self._readers else self._waiting_place())
            if later or (stepped and monotonic() - begun >= after_s):
                return
            newest = places[-LOOKS_WAITING:]
            if len(newest) == LOOKS_WAITING and newest[0] is not None and len(set(newest)) == 1:
                return

    def _waiting_place(self) -> tuple[int, int] | None:
        """Where the thread that steps waits for another; None where it does not, or waits for the begin of a new one."""
        waits = list(takewhile(_of_waiting, _stack(self._thread)))
        if any(frame.f_code.co_name == "start" for frame in waits):
            return None
        if waits:
            return id(waits[0]), waits[0].f_lasti
        has_ended = next(_stack(self._thread), None) is None
        return (0, 0) if has_ended else None


def _of_waiting(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in WAITING


def _stack(thread: int | None) -> Iterator[FrameType]:
    frame = sys._current_frames().get(thread or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back
