"""The samples that a rank reads at each step. They depend only on the seed, the world size and the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptbench.inputs.datasets.dataset import Dataset, Inputs


def epoch_order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """A permutation of the samples that depends only on the arguments, so that a resume needs no saved state for it."""
    return np.random.default_rng((seed, epoch)).permutation(samples)


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """The part of every global batch that a rank reads: `samples` entries from number `first` on."""

    first: int
    samples: int


def batch_slices(
    ranks: Sequence[int], world_size: int, batch_size: int, *, kept: bool = True
) -> list[BatchSlice]:
    """The slices of the ranks with these numbers, which are all, or those that are left, of `world_size` ranks.

    A global batch has `world_size * batch_size` samples. If it is `kept`, the ranks share it evenly, and what cannot be
    shared evenly nobody reads. Otherwise each rank reads what it would read if all were there. So two ranks with half the
    batch size read the same samples in a step as one rank.
    """
    if not kept:
        return [BatchSlice(rank * batch_size, batch_size) for rank in ranks]
    samples = world_size * batch_size // len(ranks)
    return [BatchSlice(index * samples, samples) for index in range(len(ranks))]


def rank_batch(
    order: NDArray[np.int64], step: int, own: BatchSlice, global_batch: int
) -> NDArray[np.int64]:
    """The samples of one rank in one step of an epoch, as indices (own.samples,).

    All ranks together read `global_batch` consecutive entries of `order`.
    """
    if (step + 1) * global_batch > len(order):
        raise IndexError(f"step {step} is past the last whole batch of {len(order)} samples")
    first = step * global_batch + own.first
    return order[first : first + own.samples]


def evaluation_shard(samples: int, rank: int, world_size: int, limit: int | None) -> range:
    """This rank's part of the first `limit` test samples. The sizes differ by one sample at most; the last rank's is the largest."""
    total = samples if limit is None else min(samples, limit)
    return range(rank * total // world_size, (rank + 1) * total // world_size)


class Reader:
    """The batches of one rank in the order of its steps. Its `batch_slice` may change between steps.

    `forgotten` is 0 except in the negative control `position`. There the reader begins again at the first sample of the
    first epoch, and `forgotten` is the number of steps that the run had done before.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        seed: int,
        batch_slice: BatchSlice,
        global_batch: int,
        steps_per_epoch: int,
    ) -> None:
        self._dataset = dataset
        self._seed = seed
        self.batch_slice = batch_slice
        self._global_batch = global_batch
        self._steps_per_epoch = steps_per_epoch
        self._epoch = -1
        self._order = np.zeros(0, np.int64)
        self.forgotten = 0

    def position(self, step: int) -> tuple[int, int]:
        """Epoch and step in that epoch whose samples the run's step `step` (from 0) reads."""
        return divmod(step - self.forgotten, self._steps_per_epoch)

    def prepare(self, step: int) -> None:
        """Draw the sample order of this step's epoch ahead of time; otherwise `batch` draws it."""
        epoch, _ = self.position(step)
        if epoch != self._epoch:
            samples = len(self._dataset.train_labels)
            self._epoch, self._order = epoch, epoch_order(self._seed, epoch, samples)

    def batch(self, step: int) -> tuple[Inputs, NDArray[np.int64]]:
        """Inputs and labels of the run's step `step` (from 0)."""
        self.prepare(step)
        indices = rank_batch(
            self._order, self.position(step)[1], self.batch_slice, self._global_batch
        )
        return self._dataset.batch("train", indices)
