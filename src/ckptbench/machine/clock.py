"""The clock of all measured times: CLOCK_MONOTONIC, in nanoseconds, the same for all processes of a host."""

from __future__ import annotations

import time
from pathlib import Path

clock = time.monotonic_ns


def boot_id() -> str:
    """Identifier of this host and its boot. Two processes with the same one share a monotonic clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
