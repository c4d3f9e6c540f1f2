"""Ranks that wait for one another, by files in the folder of their traces."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ckptbench_probe.check.processes import PAUSE_S
from ckptbench_probe.variables import Seat, seat

WAITS_S = 60.0
"""For other ranks, at most."""


def meet(mark: str) -> None:
    """Rank 0 waits for the others, leaves the mark, and they wait for it. Their own marks have their numbers behind it."""
    own = seat() or Seat(0, 1)
    if own.rank == 0:
        wait_for([f"{mark}-{rank}" for rank in range(1, own.ranks)])
        Path(mark).touch()
    else:
        Path(f"{mark}-{own.rank}").touch()
        wait_for([mark])


def wait_for(paths: list[str]) -> None:
    limit = time.monotonic() + WAITS_S
    while not all(map(os.path.exists, paths)) and time.monotonic() < limit:
        time.sleep(PAUSE_S)
