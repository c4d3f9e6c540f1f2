"""When a run of a killed history is killed, and the killing: moments are drawn from its seed."""

from __future__ import annotations

import os
import signal
import zlib
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ckptbench.cells import KILLED, Cell
from ckptbench.checkpoints.native import STAGES
from ckptbench.checkpoints.version import Position
from ckptbench.errors import CkptbenchError
from ckptbench.recorder import Recorder, clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One rank sends itself SIGKILL when it has done `step` steps."""

    rank: int
    step: int
    inside: str | None
    """The stage of the step's checkpoint at which it does; None: before any checkpoint of that step begins."""


def kills_of(cell: Cell, *, seed: int, steps: int, steps_between: int) -> tuple[Kill, ...]:
    """The kills of a whole run of so many steps, in the order of its attempts.

    Each comes after the first checkpoint is whole, and so that at least one step is left to do. Raises
    CkptbenchError where the run is too short for that.
    """
    number = KILLED.get(cell.history, 0)
    if not number:
        return ()
    random = np.random.default_rng((seed, zlib.crc32(cell.reference.id.encode()), number))
    moments = np.linspace(steps_between, steps, number + 1).astype(int).tolist()
    if steps - steps_between < number:
        raise CkptbenchError(
            f"a run of {steps} steps with a checkpoint every {steps_between} is too short to be killed "
            f"{number} times after its first: give it more epochs or steps, or a shorter interval"
        )
    wanted = {"killed_between": [False], "killed_inside": [True]}.get(
        cell.history, random.permutation([True, False, True]).tolist()
    )
    return tuple(
        _kill(cell, random, first + 1, last, steps_between if inside else None)
        for first, last, inside in zip(moments, moments[1:], wanted, strict=False)
    )


def _kill(
    cell: Cell, random: np.random.Generator, first: int, last: int, steps_between: int | None
) -> Kill:
    """One in the steps from `first` to `last`; inside a checkpoint where one is due there and it is asked for."""
    due = [s for s in range(first, last + 1) if steps_between and s % steps_between == 0]
    step = int(random.choice(due)) if due else int(random.integers(first, last + 1))
    inside = str(random.choice(STAGES)) if due else None
    # Rank 0 alone syncs and commits: the others are past the checkpoint's last stage of theirs by then.
    rank = 0 if inside == STAGES[-1] else int(random.integers(cell.ranks))
    return Kill(rank=rank, step=step, inside=inside)


class Interrupter:
    """Kills this rank when the moment of `kill` has come, if it is this rank's; None: never."""

    def __init__(self, kill: Kill | None, rank: int, recorder: Recorder) -> None:
        mine = kill if kill and kill.rank == rank else None
        self._step = mine.step if mine else None
        self._inside = mine.inside if mine else None
        self._recorder = recorder
        self._epoch: int | None = None

    def after_step(self, position: Position) -> None:
        """Call it after every step, before the checkpoint that may be due."""
        if position.step == self._step:
            self._epoch = position.epoch
            if self._inside is None:
                self._strike()

    def at_stage(self, stage: str) -> None:
        """Call it at each stage of a checkpoint."""
        if self._epoch is not None and stage == self._inside:
            self._strike()

    def _strike(self) -> NoReturn:
        self._recorder.event(
            "kill", step=self._step, epoch=self._epoch, inside=self._inside, monotonic_ns=clock()
        )
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL cannot be survived")
