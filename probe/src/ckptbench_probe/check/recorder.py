"""Write the digests of a training's state after each update, and end the training by SIGKILL after the one that END_AT names.

The state before the first update of a process is written as well: it is what was restored.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ckptbench_probe.check.processes import PAUSE_S, end_below
from ckptbench_probe.check.state import digest, random_states
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import END_AT, Seat, seat

BEGIN, UPDATED, SAVED = "state_at_begin", "state_after_update", "state_in_save"
ENDED = "ended-by-check"
"""File that rank 0 leaves when it ends itself; those of other ranks have their number behind it."""
WAITS_S = 60.0
"""For other ranks, at most."""


@dataclass(frozen=True)
class Now:
    """The state of a training at this moment, not copied."""

    tensors: Iterable[tuple[str, Any]]
    rates: list[float] = field(default_factory=list)
    step: int | None = None
    """Updates since the training began, across restarts, where the state tells."""
    random: dict[str, Any] = field(default_factory=dict)
    """Random states of the framework, beside those that every process has."""


class Recorder:
    def __init__(self) -> None:
        self._begun = False
        self._recorded = 0
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._begun, self._recorded = False, 0

    @harmless
    def begin(self, now: Now) -> None:
        if not self._begun:
            self._begun = True
            _write(BEGIN, 0, now)

    def updated(self, update: int, now: Now) -> None:
        """`update`: done by this process."""
        if update <= self._recorded:
            return
        self._begun = True
        self._recorded = update
        harmless(_write)(UPDATED, update, now)
        PROCESS.updates.write()
        if update >= int(os.environ.get(END_AT) or update + 1):
            _end(PROCESS.trace.folder)


def _write(event: str, update: int, now: Now) -> None:
    PROCESS.trace.write(
        event,
        update=update,
        rank=own_rank(),
        step=now.step,
        tensors={name: digest(tensor) for name, tensor in now.tensors},
        random={
            **random_states(),
            **{name: digest(state) for name, state in now.random.items()},
        },
        rates=now.rates,
    )


def own_rank() -> int:
    own = seat()
    return own.rank if own else 0


def _end(folder: str) -> NoReturn:
    """All ranks after the same update: rank 0 waits for the others, and they for it. The processes that this one has started end first: none may finish a save after the kill."""
    own = seat() or Seat(0, 1)
    mark = os.path.join(folder, ENDED)
    if own.rank == 0:
        _wait_for([f"{mark}-{rank}" for rank in range(1, own.ranks)])
        Path(mark).touch()
    else:
        Path(f"{mark}-{own.rank}").touch()
        _wait_for([mark])
    end_below(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlives no SIGKILL")


def _wait_for(paths: list[str]) -> None:
    limit = time.monotonic() + WAITS_S
    while not all(map(os.path.exists, paths)) and time.monotonic() < limit:
        time.sleep(PAUSE_S)


RECORDER = Recorder()
