"""Writes the folder of a dataset: `.npy` files from blocks of samples, and their description."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ckptbench.data.dataset import DESCRIPTION, SCHEMA_VERSION, SPLITS, Split
from ckptbench.errors import DataError
from ckptbench.machine.files import write_json
from ckptbench.machine.removal import remove_or_warn
from ckptbench.remedies import blame

Block = tuple[NDArray[np.uint8] | NDArray[np.float32], NDArray[np.int64]]
"""Images (n, height, width, channels) and labels (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A dataset ready to be written."""

    source: str
    parameters: dict[str, Any]
    """All settings on which the samples depend; they go into the description."""
    image_shape: tuple[int, int, int]
    """(height, width, channels)."""
    image_dtype: type[np.uint8] | type[np.float32] = np.uint8
    """uint8 for pixels, which `Dataset.batch` scales; float32 for values that it hands on as they are."""
    classes: int
    samples: Mapping[Split, int]
    blocks: Mapping[Split, Iterable[Block]]
    """May be generators, so that only one block at a time is in memory."""


def write_dataset(folder: Path, name: str, content: Content, made_from: Mapping[str, Any]) -> None:
    """Write `content` to `folder`, with what it was made from. Raises DataError if the disk is full or the folder is not writable.

    The description is removed before the first file is replaced, and written after the last one. So a half-written
    folder is never taken for a dataset.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_room(folder, content)
        _write(folder, name, content, made_from)
    except OSError as error:
        raise DataError(
            f"{folder}: the dataset cannot be written: {blame(error, folder, 'choose another folder')}"
        ) from error


def _write(folder: Path, name: str, content: Content, made_from: Mapping[str, Any]) -> None:
    try:
        files = _write_partials(folder, content)
        (folder / DESCRIPTION).unlink(missing_ok=True)
        for file in files:
            _partial(folder / file).replace(folder / file)
        write_json(
            folder / DESCRIPTION, {**_describe(name, content, files), "made_from": dict(made_from)}
        )
    finally:
        _remove_partials(folder)


def _require_room(folder: Path, content: Content) -> None:
    image_bytes = prod(content.image_shape) * np.dtype(content.image_dtype).itemsize
    needed = sum(content.samples.values()) * (image_bytes + np.int64().itemsize)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{folder}: the dataset needs {needed / 1e9:.2f} GB and {free / 1e9:.2f} GB are free; free "
            "some space, choose another folder, or ask for fewer or smaller samples"
        )


def _write_partials(folder: Path, content: Content) -> dict[str, dict[str, Any]]:
    """Write every array under its temporary name. Returns the entry of each file in the description."""
    files: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        samples = content.samples[split]
        images_name, labels_name = _array_names(split)
        with (
            _partial(folder / images_name).open("wb") as images_file,
            _partial(folder / labels_name).open("wb") as labels_file,
        ):
            shape = (samples, *content.image_shape)
            images = _ArrayWriter(images_file, shape, content.image_dtype)
            labels = _ArrayWriter(labels_file, (samples,), np.int64)
            for block_images, block_labels in content.blocks[split]:
                images.append(block_images)
                labels.append(block_labels)
            files |= {images_name: images.finish(), labels_name: labels.finish()}
    return files


def _array_names(split: Split) -> tuple[str, str]:
    return f"{split}_images.npy", f"{split}_labels.npy"


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _remove_partials(folder: Path) -> None:
    for split in SPLITS:
        for name in _array_names(split):
            remove_or_warn(_partial(folder / name))


def _describe(name: str, content: Content, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "source": content.source,
        "parameters": content.parameters,
        "image_shape": content.image_shape,
        "classes": content.classes,
        "files": files,
    }


class _ArrayWriter:
    """Streams an array of known shape into a `.npy` file.

    It uses plain writes and no memory map. A full disk then raises OSError; with a memory map it would end the process
    by SIGBUS. The checksum also needs no second pass.
    """

    def __init__(self, file: BinaryIO, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._file = file
        self._shape = shape
        self._dtype = np.dtype(dtype)
        self._checksum = hashlib.sha256()
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self, header)

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._checksum.update(data)

    def append(self, block: NDArray[Any]) -> None:
        self.write(np.ascontiguousarray(block, self._dtype).data)

    def finish(self) -> dict[str, Any]:
        """Put the file on stable storage and return its entry in the description."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return {
            "bytes": self._file.tell(),
            "sha256": self._checksum.hexdigest(),
            "shape": self._shape,
            "dtype": str(self._dtype),
        }
