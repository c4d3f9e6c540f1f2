"""The training settings that all cells of a study share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

from ckptbench.common.errors import DataError
from ckptbench.matrix.cell import Cell

COMPARED: Literal["compared"] = "compared"
"""A proof of those runs alone that are there to be compared, and of their references: digests would disturb the times of the others."""
CHOSEN_LATER = {"accumulation": 1}
"""Settings that trainings once did not have, with the value that all of them had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training settings that are the same for every cell. The study does not vary them."""

    seed: int
    learning_rate: float
    momentum: float
    weight_decay: float
    steps_per_epoch: int | None
    """Largest number of steps in an epoch. None: the whole training set."""
    test_samples: int | None
    """Largest number of test samples for an evaluation. None: all. 0: no evaluation."""
    warmup_steps: int
    """Number of first steps of a run that are timed separately and left out of rates."""
    keep_during_run: int
    """Number of checkpoint versions kept during training. Older ones are removed after each commit."""
    accumulation: int = 1
    """Parts into which a step splits each rank's batch."""
    proof: bool | Literal["compared"] = False
    """Record digests of the whole state at every epoch, and keep all tensors at the end, up to `run.layout.KEPT_BYTES`. A run's own is a
    boolean: see `of`."""

    def of(self, cell: Cell, proven: frozenset[str]) -> Self:
        """That of one cell. `proven` has the ids of `proven_by`."""
        return replace(self, proof=cell.id in proven) if self.proof == COMPARED else self


def proven_by(cells: Iterable[Cell]) -> frozenset[str]:
    """The ids of the cells that are compared, and of their references."""
    compared = (cell for cell in cells if cell.is_compared)
    return frozenset(each.id for cell in compared for each in (cell, cell.reference))


def steps_per_epoch(samples: int, world_size: int, batch_size: int, limit: int | None) -> int:
    """Number of whole global batches in an epoch, at most `limit`. Raises DataError if not even one fits."""
    global_batch = world_size * batch_size
    steps = samples // global_batch
    if steps == 0:
        raise DataError(
            f"{world_size} ranks with batch size {batch_size} need {global_batch} training samples a "
            f"step, and the dataset has {samples}: use a smaller batch size or fewer ranks"
        )
    return steps if limit is None else min(steps, limit)
