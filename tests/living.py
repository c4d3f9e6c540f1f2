"""Whether a process that a test knows by its id still runs."""

from __future__ import annotations

import psutil


def is_running(pid: int) -> bool:
    """False also where it has ended and its parent has not asked for its exit status."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
