"""What this process measures: one object that hooks in many modules share."""

from __future__ import annotations

import _thread
import atexit
import functools
import os
import sys
from time import monotonic_ns
from typing import Any, Callable, NoReturn

from ckptbench_probe.harmless import TROUBLES, harmless
from ckptbench_probe.saves import Saves
from ckptbench_probe.trace import Trace
from ckptbench_probe.updates import Updates
from ckptbench_probe.variables import CHECK

LAST_LOOK_S = 1.0
"""By how much `os._exit` is late at most: programs that hang end themselves by it."""


class Process:
    def __init__(self) -> None:
        self.trace = Trace(opened=self._close_with_multiprocessing)
        self.updates = Updates(self.trace)
        self.saves = Saves(self.trace, self.updates)
        self._closed = False
        self.before_end: list[Callable[[], Any]] = []
        """Called when the process ends, before its last events are written."""
        TROUBLES.append(self._trouble)
        atexit.register(harmless(self.close))
        os.register_at_fork(after_in_child=self._renew)
        os._exit = self._noted(os._exit)  # type: ignore[assignment]

    def _noted(self, end: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
        """No `atexit` is called before it. Whatever hangs in this process, the end comes."""

        @functools.wraps(end)
        def _exit(status: int) -> NoReturn:
            try:
                harmless(self._close_soon)()
            finally:
                end(status)

        return _exit

    def _close_soon(self) -> None:
        """In another thread, as this one may hold any lock: it may be a signal's handler."""
        if self._closed or not self._has_events:
            return
        self.updates.write()
        closed = _thread.allocate_lock()
        closed.acquire()
        try:
            _thread.start_new_thread(self._close_and_release, (closed,))
        except RuntimeError:  # Python itself ends
            self.close()
        else:
            closed.acquire(timeout=LAST_LOOK_S)

    def _close_and_release(self, closed: _thread.LockType) -> None:
        try:
            harmless(self.close)()
        finally:
            closed.release()

    def _close_with_multiprocessing(self) -> None:
        """A child of `multiprocessing` ends without `atexit`, but calls these."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, harmless(self.close), exitpriority=0)

    @property
    def _has_events(self) -> bool:
        return self.trace.used or bool(self.updates.moments)

    def close(self) -> None:
        """The process ends."""
        if self._closed or not self._has_events:
            return
        self._closed = True
        for last in self.before_end:
            harmless(last)()
        harmless(self.updates.read_flags)()
        self.updates.write()
        self.saves.close()
        self.trace.write("exit", at_ns=monotonic_ns())

    def _trouble(self, reason: str) -> None:
        """A check must know: without this part it may see less than it seems."""
        if os.environ.get(CHECK):
            self.trace.write("trouble", reason=reason)

    def _renew(self) -> None:
        self._closed = False
        self.trace.renew()
        self.updates.renew()
        self.saves.renew()


PROCESS = Process()
