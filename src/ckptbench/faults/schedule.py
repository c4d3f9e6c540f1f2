"""The schedule of kills in a run with a killed history, drawn from its seed."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass

import numpy as np

from ckptbench.errors import CkptbenchError
from ckptbench.matrix.catalogue import KILLED, KILLED_INSIDE, STRATEGIES, SYNCED
from ckptbench.matrix.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One rank sends itself SIGKILL when it has done `step` steps."""

    rank: int
    step: int
    inside: str | None
    """Stage of the step's checkpoint at which the kill comes. None: before a checkpoint of that step begins."""


def kills_of(cell: Cell, *, seed: int, steps: int, steps_between: int) -> tuple[Kill, ...]:
    """The kills of a run of `steps` steps with a checkpoint every `steps_between` steps, in the order of its attempts.

    The steps after the first checkpoint are divided into equal shares, one for each kill; those after the second one if
    checkpoints end in the background, because the first is surely there only when the second begins. After each kill at
    least one step is left to do. Raises CkptbenchError if the run is too short, or its checkpoints too rare, for the history.
    """
    number = KILLED.get(cell.history, 0)
    if not number:
        return ()
    random = np.random.default_rng((seed, zlib.crc32(cell.reference.id.encode()), number))
    safe = steps_between if STRATEGIES[cell.strategy.name].blocking else 2 * steps_between
    ends = np.linspace(safe, steps, number + 1).astype(int).tolist()
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
    """Indices of the kills that come inside a checkpoint, drawn from `possible`; None if there are too few."""
    wanted = KILLED_INSIDE[history]
    if len(possible) < wanted:
        return None
    return set(random.permutation(possible)[:wanted].tolist())


def _kill_inside(cell: Cell, random: np.random.Generator, due: list[int]) -> Kill:
    stage = str(random.choice([*STRATEGIES[cell.strategy.name].stages, SYNCED]))
    # Only rank 0 syncs and commits. The other ranks have passed their last stage by then.
    rank = 0 if stage == SYNCED else int(random.integers(cell.ranks))
    return Kill(rank=rank, step=int(random.choice(due)), inside=stage)
