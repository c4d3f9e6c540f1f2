"""Prepared datasets, opened as memory-mapped arrays.

A prepared dataset is a folder with four `.npy` files and `dataset.json`. The files hold images, uint8 or float32 (n,
height, width, channels), and labels, int64 (n,), of the training and the test set. `dataset.json` is written last: a
folder without it is not a dataset.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.errors import DataError, RunFolderError, all_of
from ckptbench.machine.files import read_json
from ckptbench.remedies import blame

DESCRIPTION = "dataset.json"
SCHEMA_VERSION = 1

REMEDY = f"remove {DESCRIPTION} of this dataset and run the study again, which prepares it anew"

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A prepared dataset; its arrays stay on disk until samples are read."""

    name: str
    image_shape: tuple[int, int, int]
    """(height, width, channels)."""
    classes: int
    train_images: NDArray[np.uint8] | NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8] | NDArray[np.float32]
    test_labels: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map the arrays of `folder`. Raises DataError if it has no valid description or the arrays differ from it.

        Sizes, shapes and types are compared. Checksums are not, because ranks open their dataset while their start is
        being timed.
        """
        description = _description(folder)
        try:
            files = description["files"]
            found = all_of(partial(_array, folder / name, files[name]) for name in files)
            arrays = dict(zip((name.removesuffix(".npy") for name in files), found, strict=True))
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
        """Images (n, height, width, channels) and labels (n,). A uint8 pixel p becomes p / 127.5 - 1, in [-1, 1].

        That scale is a constant and not a statistic of the dataset, so it needs no pass over the data. Float32 values
        were scaled when the dataset was prepared.
        """
        images, labels = {
            "train": (self.train_images, self.train_labels),
            "test": (self.test_images, self.test_labels),
        }[split]
        positions = np.asarray(indices, np.int64)
        chosen = images[positions].astype(np.float32)
        if images.dtype == np.uint8:
            chosen /= np.float32(127.5)
            chosen -= np.float32(1)
        return chosen, labels[positions]


def dataset_sha256(folder: Path) -> str:
    """The checksum of a prepared dataset, from its description: name, shape of an image, classes, and every file.

    The description has the SHA-256 of each file, so the files are not read. Raises DataError if there is no valid
    description.
    """
    description = _description(folder)
    names = ("name", "image_shape", "classes", "files")
    try:
        content = {name: description[name] for name in names}
    except KeyError as error:
        raise _unusable(folder / DESCRIPTION, f"does not describe a dataset ({error!r})") from error
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
    """The array in `path`, memory-mapped. Raises DataError if its size, shape or type differ from `described`."""
    try:
        bytes_found = path.stat().st_size
        if bytes_found != described["bytes"]:
            raise _unusable(
                path, f"has {bytes_found} bytes, was prepared with {described['bytes']}"
            )
        # A plain array over the map: indexing a numpy.memmap costs more and gives memmaps again.
        array: NDArray[Any] = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {blame(error, path, REMEDY, reading=True)}"
        ) from error
    except ValueError as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    if list(array.shape) != described["shape"] or str(array.dtype) != described["dtype"]:
        expected = f"{described['dtype']} {described['shape']}"
        raise _unusable(
            path, f"holds {array.dtype} {list(array.shape)}, was prepared as {expected}"
        )
    return array


def _unusable(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: {reason}; {REMEDY}")
