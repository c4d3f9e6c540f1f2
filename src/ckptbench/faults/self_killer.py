"""Kills a rank, from within, at the moment that the schedule of its run gives."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from ckptbench.faults.schedule import Kill
from ckptbench.machine.clock import clock
from ckptbench.runs import events
from ckptbench.runs.position import Position
from ckptbench.runs.recorder import Recorder


class SelfKiller:
    """Kills this rank at the moment of `kill`, if `kill` names this rank. With None it never does."""

    def __init__(self, kill: Kill | None, rank: int, recorder: Recorder) -> None:
        self._kill = kill if kill and kill.rank == rank else None
        self._recorder = recorder
        self._saving: Position | None = None

    def after_step(self, position: Position) -> None:
        """Call it after every step, before a checkpoint that is due."""
        kill = self._kill
        if kill is not None and kill.inside is None and position.step == kill.step:
            self._strike(kill, position)

    def before_save(self, position: Position) -> None:
        """Call it when a checkpoint begins and the one before is finished: the stages that follow are its own."""
        if self._kill is not None and position.step == self._kill.step:
            self._saving = position

    def at_stage(self, stage: str) -> None:
        """Call it at each stage of a checkpoint."""
        if self._kill is not None and self._saving is not None and stage == self._kill.inside:
            self._strike(self._kill, self._saving)

    def _strike(self, kill: Kill, at: Position) -> NoReturn:
        self._recorder.write(
            events.Kill(step=at.step, epoch=at.epoch, inside=kill.inside, monotonic_ns=clock())
        )
        self._recorder.sync()  # the launcher reads it, perhaps on another node
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL cannot be survived")
