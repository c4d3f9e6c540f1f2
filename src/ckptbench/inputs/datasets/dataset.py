"""Prepared datasets, opened as memory-mapped arrays.

A prepared dataset is a folder with four `.npy` files and `dataset.json`. The files hold the inputs and labels of the
training and the test set. Inputs are images, uint8 or float32 (n, height, width, channels), with labels int64 (n,), or
tokens, uint16 (n, length), with the token that follows each of them as its label, uint16 (n, length). `dataset.json` is
written last: a folder without it is not a dataset.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import DataError, RunFolderError
from ckptbench.common.files import read_json
from ckptbench.common.remedies import blame
from ckptbench.common.shape import WrongShape, check

DESCRIPTION = "dataset.json"
SCHEMA_VERSION = 1

REMEDY = f"remove {DESCRIPTION} of this dataset and run the study again, which prepares it again"

DESCRIBED = ("name", "image_shape", "classes", "files")
"""What identifies a dataset in its description. The shape of tokens has that name too: another one would change the checksums
of all datasets, and so the identity of every run."""

TOKEN = np.uint16
"""The type in which tokens are stored, as in nanoGPT's `.bin` files."""
Inputs = NDArray[np.float32] | NDArray[np.int64]
"""Images, float32 (n, height, width, channels), or tokens, int64 (n, length)."""

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")
FILES = {f"{split}_{what}.npy" for split in SPLITS for what in ("images", "labels")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A prepared dataset; its arrays stay on disk until samples are read."""

    name: str
    sample_shape: tuple[int, ...]
    """(height, width, channels); of tokens (length,)."""
    classes: int
    """Kinds of labels; of tokens the vocabulary."""
    train_images: NDArray[Any]
    train_labels: NDArray[Any]
    test_images: NDArray[Any]
    test_labels: NDArray[Any]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map the arrays of `folder`. Raises DataError if it has no valid description or an array is missing or cut.

        Checksums are not compared, because ranks open their dataset while their start is being timed.
        """
        description = _description(folder)
        files = {name: each["bytes"] for name, each in description["files"].items()}
        return cls(
            name=description["name"],
            sample_shape=tuple(description["image_shape"]),
            classes=description["classes"],
            **{name.removesuffix(".npy"): _array(folder / name, files[name]) for name in files},
        )

    def batch(
        self, split: Split, indices: NDArray[np.int64] | range
    ) -> tuple[Inputs, NDArray[np.int64]]:
        """Images (n, height, width, channels) and labels (n,), or tokens and labels (n, length). A uint8 pixel p becomes
        p / 127.5 - 1, in [-1, 1].

        That scale is a constant and not a statistic of the dataset, so it needs no pass over the data. Float32 values
        were scaled when the dataset was prepared.
        """
        images, labels = getattr(self, f"{split}_images"), getattr(self, f"{split}_labels")
        positions = np.asarray(indices, np.int64)
        if images.dtype == TOKEN:
            return images[positions].astype(np.int64), labels[positions].astype(np.int64)
        chosen = images[positions].astype(np.float32)
        if images.dtype == np.uint8:
            chosen /= np.float32(127.5)
            chosen -= np.float32(1)
        return chosen, labels[positions]


def dataset_sha256(folder: Path) -> str:
    """The checksum of a prepared dataset, from its description: name, shape of a sample, classes, and every file.

    The description has the SHA-256 of each file, so the files are not read. Raises DataError if there is no valid
    description.
    """
    description = _description(folder)
    content = {name: description[name] for name in DESCRIBED}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.exists():
        raise DataError(f"{folder}: not a prepared dataset: it has no {DESCRIPTION}; {REMEDY}")
    try:
        description = read_json(path)
        check(description, _Description)
    except RunFolderError as error:
        raise DataError(f"{error}; {REMEDY}") from error
    except WrongShape as error:
        raise DataError(
            f"{path}: not the description of a dataset, by this version ({error}); {REMEDY}"
        ) from error
    if description["schema_version"] != SCHEMA_VERSION or {*description["files"]} != FILES:
        raise DataError(f"{path}: not the description of a dataset, by this version; {REMEDY}")
    return description


class _File(TypedDict):
    bytes: int
    sha256: str


class _Description(TypedDict):
    """What identifies a dataset, and its version."""

    schema_version: int
    name: str
    image_shape: list[int]
    classes: int
    files: dict[str, _File]


def _array(path: Path, size: int) -> NDArray[Any]:
    """The array in `path`, memory-mapped. Raises DataError if the file has another size."""
    try:
        if (found := path.stat().st_size) != size:
            raise DataError(f"{path}: has {found} bytes, was prepared with {size}; {REMEDY}")
        # A plain array over the map: indexing a numpy.memmap costs more and gives memmaps again.
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as error:
        words = blame(error, path, REMEDY, reading=True)
        raise DataError(f"{path}: cannot be read: {words}") from error
