"""The processes of a job on this host.

Grid Engine kills a job's process group. A child that began a session of its own lives on, unless
the site has set ENABLE_ADDGRP_KILL; so the job ends those itself when it is told to stop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_MARK = "SGE_JOB_SPOOL_DIR"
"""Set by Grid Engine for every process of a job, and different for every job of a host."""


def end_others_of_job(grace_s: float = 2) -> None:
    """SIGTERM to every process of this job but this one and its ancestors, SIGKILL to those
    that are left after `grace_s`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not (others := _others()):
            return
        for pid in others:
            _send(pid, number)
        deadline = time.monotonic() + grace_s
        while _others() and time.monotonic() < deadline:
            time.sleep(0.05)


def _others() -> list[int]:
    if not (mark := os.environ.get(_MARK)):
        return []
    wanted = f"{_MARK}={mark}".encode()
    family = _self_and_ancestors()
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [pid for pid in pids if pid not in family and wanted in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    """Empty for another user's process, and for one that has ended but not been waited for."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _self_and_ancestors() -> set[int]:
    family, pid = set(), os.getpid()
    while pid > 0:
        family.add(pid)
        pid = _parent(pid)
    return family


def _parent(pid: int) -> int:
    """0 at the top. The command name, in parentheses, may hold spaces."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
