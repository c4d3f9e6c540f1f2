"""A job's own clock, which tells it to stop some time before its limit, as often as it is run.

Schedulers do not: PBS has no such signal, and Grid Engine 8.1.9 forgets a requeued job at its second soft limit (`s_rt`).
"""

from __future__ import annotations

import os
import signal
import threading
import time

STOP_AT = "SUBMITIT_STOP_AT"
"""In seconds since the host was started: its wall clock may be set."""


def lines(after_s: int | None) -> list[str]:
    """Of the submission file. `after_s`: when the job is told to stop; None: never."""
    # Unset, lest the value of a job that submits this one be taken for its own.
    return [
        f"unset {STOP_AT}"
        if after_s is None
        else f"export {STOP_AT}=$(($(cut -d. -f1 /proc/uptime) + {after_s}))"
    ]


def start(number: signal.Signals) -> None:
    """Sends the signal to this process when its time has come."""
    if stop_at := os.environ.get(STOP_AT):
        after_s = float(stop_at) - time.clock_gettime(time.CLOCK_BOOTTIME)
        timer = threading.Timer(max(0, after_s), os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()
