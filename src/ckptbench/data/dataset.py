"""Datasets as memory-mapped arrays, and the order in which ranks read them.

A prepared dataset is a folder of four `.npy` files (images uint8 (n, height, width, channels), labels
int64 (n,)) and `dataset.json`, which is written last: where it is missing, nothing else is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import DataError, RunFolderError
from ckptbench.manifest import read_json

DESCRIPTION = "dataset.json"
SCHEMA_VERSION = 1

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A prepared dataset; its arrays stay on disk until samples are read."""

    name: str
    image_shape: tuple[int, int, int]
    """(height, width, channels)."""
    classes: int
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map the arrays of `folder`; raises DataError where it is not what its description says.

        Sizes, shapes and types are compared, checksums are not: ranks open their dataset while the
        launch is being timed.
        """
        description = _description(folder)
        try:
            files = description["files"]
            arrays = {
                name.removesuffix(".npy"): _array(folder / name, files[name]) for name in files
            }
            return cls(
                name=description["name"],
                image_shape=tuple(description["image_shape"]),
                classes=description["classes"],
                **arrays,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise _unusable(
                folder / DESCRIPTION, f"does not describe a dataset ({error!r})"
            ) from error

    def batch(
        self, split: Split, indices: NDArray[np.int64] | range
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Images (n, height, width, channels), pixel p as p / 127.5 - 1 in [-1, 1], and labels (n,).

        The scale is a constant, not a statistic of the dataset: it needs no pass over the data.
        """
        images, labels = {
            "train": (self.train_images, self.train_labels),
            "test": (self.test_images, self.test_labels),
        }[split]
        positions = np.asarray(indices, np.int64)
        scaled = images[positions].astype(np.float32)
        scaled /= np.float32(127.5)
        scaled -= np.float32(1)
        return scaled, labels[positions]


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.exists():
        raise _unusable(folder, f"not a prepared dataset: it has no {DESCRIPTION}")
    try:
        description = read_json(path)
    except RunFolderError as error:
        raise _unusable(folder, str(error)) from error
    if description.get("schema_version") != SCHEMA_VERSION:
        found = description.get("schema_version")
        raise _unusable(path, f"schema_version is {found}, this version reads {SCHEMA_VERSION}")
    return description


def _array(path: Path, described: dict[str, Any]) -> NDArray[Any]:
    """The array in `path`, mapped; raises DataError unless it has the described size, shape and type."""
    try:
        bytes_found = path.stat().st_size
        if bytes_found != described["bytes"]:
            raise _unusable(
                path, f"has {bytes_found} bytes, was prepared with {described['bytes']}"
            )
        # A plain view: indexing a numpy.memmap costs more and gives memmaps again.
        array: NDArray[Any] = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    if list(array.shape) != described["shape"] or str(array.dtype) != described["dtype"]:
        expected = f"{described['dtype']} {described['shape']}"
        raise _unusable(
            path, f"holds {array.dtype} {list(array.shape)}, was prepared as {expected}"
        )
    return array


def _unusable(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path}: {reason}; remove {DESCRIPTION} of this dataset and run the study again, which prepares it anew"
    )


def epoch_order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """A permutation of the samples that depends on the arguments alone: a resume needs no state for it."""
    return np.random.default_rng((seed, epoch)).permutation(samples)


def steps_per_epoch(samples: int, world_size: int, batch_size: int, limit: int | None) -> int:
    """Whole global batches in an epoch, `limit` at most; raises DataError where not even one fits."""
    global_batch = world_size * batch_size
    steps = samples // global_batch
    if steps == 0:
        raise DataError(
            f"{world_size} ranks with batch size {batch_size} need {global_batch} training samples a "
            f"step, and the dataset has {samples}: use a smaller batch size or fewer ranks"
        )
    return steps if limit is None else min(steps, limit)


def rank_batch(
    order: NDArray[np.int64], step: int, rank: int, world_size: int, batch_size: int
) -> NDArray[np.int64]:
    """The samples of one rank in one step of an epoch, as indices (batch_size,).

    All ranks together read `world_size * batch_size` consecutive entries of `order`, each its contiguous
    part: two ranks with half the batch see what one rank sees with the whole.
    """
    first = (step * world_size + rank) * batch_size
    if first + batch_size > len(order):
        raise IndexError(f"step {step} is past the last whole batch of {len(order)} samples")
    return order[first : first + batch_size]


def test_shard(samples: int, rank: int, world_size: int, limit: int | None) -> range:
    """This rank's part of the first `limit` test samples; the parts differ by one sample at most."""
    total = samples if limit is None else min(samples, limit)
    return range(rank * total // world_size, (rank + 1) * total // world_size)


class Reader:
    """The batches of one rank in the order of its steps.

    A reader that forgets its position begins anew at the first sample of the first epoch, `forgotten` steps late.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        seed: int,
        rank: int,
        world_size: int,
        batch_size: int,
        steps_per_epoch: int,
    ) -> None:
        self._dataset = dataset
        self._seed = seed
        self._share = (rank, world_size, batch_size)
        self._steps_per_epoch = steps_per_epoch
        self._epoch = -1
        self._order = np.zeros(0, np.int64)
        self.forgotten = 0

    def position(self, step: int) -> tuple[int, int]:
        """Epoch, and step in it, from which the batch of the run's step `step` (from 0) comes."""
        return divmod(step - self.forgotten, self._steps_per_epoch)

    def prepare(self, step: int) -> None:
        """Draw the order of the epoch that this step reads; `batch` does where it was not called."""
        epoch, _ = self.position(step)
        if epoch != self._epoch:
            samples = len(self._dataset.train_labels)
            self._epoch, self._order = epoch, epoch_order(self._seed, epoch, samples)

    def batch(self, step: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Images and labels of the run's step `step` (from 0)."""
        self.prepare(step)
        indices = rank_batch(self._order, self.position(step)[1], *self._share)
        return self._dataset.batch("train", indices)
