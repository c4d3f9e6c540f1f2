"""What this process measures: one object that hooks in many modules share."""

from __future__ import annotations

import atexit
import os
import sys
from time import monotonic_ns
from typing import Any, Callable

from ckptbench_probe.harmless import TROUBLES, harmless
from ckptbench_probe.saves import Saves
from ckptbench_probe.trace import Trace
from ckptbench_probe.updates import Updates
from ckptbench_probe.variables import CHECK


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

    def _close_with_multiprocessing(self) -> None:
        """A child of `multiprocessing` ends without `atexit`, but calls these."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, harmless(self.close), exitpriority=0)

    def close(self) -> None:
        """The process ends."""
        if self._closed or not (self.trace.used or self.updates.moments):
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
