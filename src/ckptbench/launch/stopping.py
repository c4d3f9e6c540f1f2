"""Stop requests: signals that a scheduler sends before a time limit or a pre-emption, or that a user sends."""

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
    """Whether this process has been asked to stop."""

    signal: str | None = None
    """The name of the first stop signal. None: no signal has come."""


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within this context a stop signal does not end the process: it is noted in the StopRequest."""
    request = StopRequest()

    def note(number: int, _: FrameType | None) -> None:
        request.signal = request.signal or signal.Signals(number).name

    before = {number: signal.signal(number, note) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
