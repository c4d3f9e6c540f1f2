"""The processes of a job on this host.

Grid Engine kills a job's process group. A child that began a session of its own lives on, unless
the site has set ENABLE_ADDGRP_KILL; so the job ends those itself when it is told to stop.
"""

from __future__ import annotations

import contextlib
import os

import psutil

_MARK = "SGE_JOB_SPOOL_DIR"
"""Set by Grid Engine for every process of a job, and different for every job of a host."""


def end_others_of_job(grace_s: float = 2) -> None:
    """SIGTERM to every process of this job but this one and its ancestors, SIGKILL to those
    that are left after `grace_s`."""
    for end in (psutil.Process.terminate, psutil.Process.kill):
        if not (others := _others()):
            return
        for process in others:
            with contextlib.suppress(psutil.Error):
                end(process)
        psutil.wait_procs(others, timeout=grace_s)


def _others() -> list[psutil.Process]:
    if not (mark := os.environ.get(_MARK)):
        return []
    own = psutil.Process()
    family = {own, *own.parents()}
    return [each for each in psutil.process_iter() if each not in family and _mark(each) == mark]


def _mark(process: psutil.Process) -> str | None:
    """None of another user's process, and of one that has ended."""
    with contextlib.suppress(psutil.Error):
        mark: str | None = process.environ().get(_MARK)
        return mark
    return None
