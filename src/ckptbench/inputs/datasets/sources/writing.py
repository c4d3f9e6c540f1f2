"""Writes the folder of a dataset: `.npy` files from blocks of samples, and their description."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ckptbench.common.errors import DataError
from ckptbench.common.files import write_json
from ckptbench.common.remedies import blame
from ckptbench.common.removal import remove_or_warn
from ckptbench.inputs.datasets.dataset import DESCRIPTION, SCHEMA_VERSION, SPLITS, TOKEN
from ckptbench.inputs.datasets.sources.source import Content


def write_dataset(folder: Path, name: str, content: Content, made_from: Mapping[str, Any]) -> None:
    """Write `content` to `folder`, with what it was made from. Raises DataError if the disk is full or the folder is not writable.

    The description is removed before the first file is replaced, and written after the last one. So a half-written
    folder is never taken for a dataset.
    """
    files: dict[str, dict[str, Any]] = {}
    partials = [
        folder / f"{split}_{kind}.npy.partial" for split in SPLITS for kind in ("images", "labels")
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = _write_partials(folder, content)
        (folder / DESCRIPTION).unlink(missing_ok=True)
        for partial in partials:
            partial.replace(partial.with_suffix(""))
        description = {
            "schema_version": SCHEMA_VERSION,
            "name": name,
            "source": content.source,
            "image_shape": content.sample_shape,
            "classes": content.classes,
            "files": files,
            "made_from": dict(made_from),
        }
        write_json(folder / DESCRIPTION, description)
    except OSError as error:
        raise DataError(
            f"{folder}: the dataset cannot be written: {blame(error, folder, 'choose another folder')}"
        ) from error
    finally:
        for partial in partials:
            remove_or_warn(partial)


def _write_partials(folder: Path, content: Content) -> dict[str, dict[str, Any]]:
    """Write every array under its temporary name. Returns the entry of each file in the description."""
    files: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        samples = content.samples[split]
        with (
            (folder / f"{split}_images.npy.partial").open("wb") as images_file,
            (folder / f"{split}_labels.npy.partial").open("wb") as labels_file,
        ):
            shape = (samples, *content.sample_shape)
            images = _ArrayWriter(images_file, shape, content.sample_dtype)
            of_tokens = content.sample_dtype is TOKEN
            labels = (
                _ArrayWriter(labels_file, shape, TOKEN)
                if of_tokens
                else _ArrayWriter(labels_file, (samples,), np.int64)
            )
            for block_images, block_labels in content.blocks[split]:
                images.append(block_images)
                labels.append(block_labels)
            files |= {
                f"{split}_images.npy": images.finish(),
                f"{split}_labels.npy": labels.finish(),
            }
    return files


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
