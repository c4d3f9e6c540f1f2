"""Being told to stop: by a scheduler before a time limit or a pre-emption, or by hand."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

# SIGTERM: scancel, qdel, pre-emption. SIGUSR1: Grid Engine's s_rt. SIGUSR2: submitit, Grid Engine's -notify.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(slots=True)
class StopRequest:
    """What this process has been told while it held the signals."""

    signal: str | None = None
    """The name of the first stop signal; None until there is one."""


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Take stop signals as requests rather than as an end, for as long as the context lasts."""
    request = StopRequest()

    def note(number: int, _: FrameType | None) -> None:
        request.signal = request.signal or signal.Signals(number).name

    before = {number: signal.signal(number, note) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
