"""When a run of a killed history is killed, and the killing: moments are drawn from its seed."""

from __future__ import annotations

import itertools
import os
import signal
import zlib
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ckptbench.cells import KILLED, KILLED_INSIDE, Cell
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

    Each has a share of the steps after the first checkpoint to itself, and leaves at least one step to do. Raises
    CkptbenchError where the run is too short, or its checkpoints too rare, for what the history asks.
    """
    number = KILLED.get(cell.history, 0)
    if not number:
        return ()
    random = np.random.default_rng((seed, zlib.crc32(cell.reference.id.encode()), number))
    ends = np.linspace(steps_between, steps, number + 1).astype(int).tolist()
    shares = [range(first + 1, last + 1) for first, last in itertools.pairwise(ends)]
    due = [[step for step in share if step % steps_between == 0] for share in shares]
    inside = _drawn_inside(cell.history, random, [index for index, some in enumerate(due) if some])
    if inside is None or not all(shares):
        raise CkptbenchError(
            f"a run of {steps} steps with a checkpoint every {steps_between} is too short for the history "
            f"{cell.history}: give it more epochs or steps, or a shorter interval"
        )
    return tuple(
        _kill_inside(cell, random, due[index])
        if index in inside
        else Kill(
            rank=int(random.integers(cell.ranks)), step=int(random.choice(share)), inside=None
        )
        for index, share in enumerate(shares)
    )


def _drawn_inside(
    history: str, random: np.random.Generator, possible: list[int]
) -> set[int] | None:
    """Which of the kills come inside a checkpoint, of those that can; None where too few can."""
    wanted = KILLED_INSIDE[history]
    if len(possible) < wanted:
        return None
    return set(random.permutation(possible)[:wanted].tolist())


def _kill_inside(cell: Cell, random: np.random.Generator, due: list[int]) -> Kill:
    stage = str(random.choice(STAGES))
    # Rank 0 alone syncs and commits: the others are past the checkpoint's last stage of theirs by then.
    rank = 0 if stage == STAGES[-1] else int(random.integers(cell.ranks))
    return Kill(rank=rank, step=int(random.choice(due)), inside=stage)


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
        self._recorder.sync()  # the launcher may be on another node
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL cannot be survived")
