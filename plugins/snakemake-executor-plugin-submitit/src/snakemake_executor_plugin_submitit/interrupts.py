"""Ctrl-C, and output that nobody reads any more: neither leaves a job behind.

With `| tee` they come together: Ctrl-C ends tee as well, and Snakemake's first word after it raises BrokenPipeError, before Snakemake
would have cancelled anything.
"""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface


class Lines:
    """Snakemake's logger for the lines of this plugin, which are less than its jobs: those that nobody reads are dropped."""

    def __init__(self, logger: LoggerExecutorInterface) -> None:
        self._logger = logger

    def info(self, line: str) -> None:
        with suppress(BrokenPipeError):
            self._logger.info(line)

    def warning(self, line: str) -> None:
        with suppress(BrokenPipeError):
            self._logger.warning(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


class Interrupts:
    """From `watch` to `over` Ctrl-C calls `cancel` first, in a thread of its own: this one may hold a lock that `cancel` needs."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._canceller = threading.Thread(target=cancel, name="canceller")
        self._watches = False

    def watch(self) -> None:
        """Without effect outside of the main thread, and where SIGINT is somebody else's."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._watches = _set(self._heard)

    def ignore(self) -> None:
        """A second Ctrl-C would leave jobs behind."""
        if self._watches:
            _set(signal.SIG_IGN)

    def over(self) -> None:
        """Returns when all is cancelled that was to be."""
        if self._canceller.ident is not None:
            self._canceller.join()
        if self._watches:
            self._watches = not _set(signal.default_int_handler)

    def _heard(self, signum: int, frame: FrameType | None) -> None:
        self.ignore()
        self._canceller.start()
        raise KeyboardInterrupt


def _set(handler: Any) -> bool:
    """Whether this thread may set what Ctrl-C does, as only the main one may."""
    here = threading.current_thread() is threading.main_thread()
    if here:
        signal.signal(signal.SIGINT, handler)
    return here
