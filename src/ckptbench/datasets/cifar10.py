"""CIFAR-10 (Krizhevsky 2009) from its official archive, the python version.

The archive's batches are pickles, and a pickle can run any code: these are read by an unpickler that knows
the five names that an array needs and refuses every other, and nothing is extracted to disk.
"""

from __future__ import annotations

import pickle
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ckptbench.datasets.archive import download, verify
from ckptbench.datasets.settings import parse_settings
from ckptbench.datasets.writing import Block, Content
from ckptbench.errors import DataError

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
ARCHIVE = "cifar-10-python.tar.gz"
SETTING = "datasets.cifar10.archive"

IMAGE_SHAPE = (32, 32, 3)
CLASSES = 10
TRAIN_BATCHES = tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "cifar-10-batches-py/test_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar10Settings:
    """Raises TypeError where a value has another type than its field."""

    archive: str | None = None
    """Path of the archive; None: the one in the dataset's folder, fetched from URL if it is not there."""
    sha256: str = SHA256
    """What the archive must have: for an archive of the same layout that is not the official one."""

    def __post_init__(self) -> None:
        if not isinstance(self.archive, str | None):
            raise TypeError(f"archive is {self.archive!r}: use a path or null")
        if not isinstance(self.sha256, str):
            raise TypeError(f"sha256 is {self.sha256!r}: use 64 hexadecimal digits")


def content(folder: Path, settings: Mapping[str, Any]) -> Content:
    """Raises DataError where the archive cannot be had, has another checksum or another content."""
    chosen = parse_settings(Cifar10Settings, "cifar10", settings)
    archive = _obtain(folder, chosen)
    batches = read_batches(archive)
    train, test = [batches[name] for name in TRAIN_BATCHES], [batches[TEST_BATCH]]
    return Content(
        source=URL if chosen.sha256 == SHA256 else archive.name,
        parameters={"sha256": chosen.sha256},
        image_shape=IMAGE_SHAPE,
        classes=CLASSES,
        samples={"train": sum(len(labels) for _, labels in train), "test": len(test[0][1])},
        blocks={"train": train, "test": test},
    )


def _obtain(folder: Path, settings: Cifar10Settings) -> Path:
    """The archive, which is there and the expected one."""
    archive = folder / ARCHIVE if settings.archive is None else Path(settings.archive)
    if settings.archive is None and not archive.exists():
        download(URL, archive, settings.sha256, setting=SETTING)
    verify(archive, settings.sha256, remedy=f"set {SETTING} to a copy of {URL}")
    return archive


def read_batches(archive: Path) -> dict[str, Block]:
    """Images and labels of the six batches, by their names in the archive."""
    wanted = (*TRAIN_BATCHES, TEST_BATCH)
    batches: dict[str, Block] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.name in wanted and (file := tar.extractfile(member)) is not None:
                    batches[member.name] = _read_batch(f"{archive}: {member.name}", file.read())
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{archive}: the archive is damaged: {error}; fetch it again") from error
    missing = [name for name in wanted if name not in batches]
    if missing:
        raise DataError(f"{archive}: the archive lacks {', '.join(missing)}; get it from {URL}")
    return batches


def _read_batch(where: str, data: bytes) -> Block:
    """Rows of 1,024 red, 1,024 green and 1,024 blue pixels to images (n, 32, 32, 3), and labels (n,)."""
    batch = _unpickle(where, data)
    if not isinstance(batch, dict):
        raise DataError(f"{where} holds {type(batch).__name__}, expected a dictionary; get {URL}")
    height, width, channels = IMAGE_SHAPE
    rows, labels = batch.get(b"data"), batch.get(b"labels")
    row_length = height * width * channels
    if not (
        isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.shape[1:] == (row_length,)
    ):
        raise DataError(f'{where}: "data" is no uint8 array with rows of {row_length}; get {URL}')
    if not (
        isinstance(labels, list)
        and len(labels) == len(rows) > 0
        and all(isinstance(label, int) and 0 <= label < CLASSES for label in labels)
    ):
        expected = f"{len(rows)} whole numbers from 0 to {CLASSES - 1}"
        raise DataError(f'{where}: "labels" is no list of {expected}; get {URL}')
    images = rows.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    return images, np.asarray(labels, np.int64)


def _unpickle(where: str, data: bytes) -> Any:
    # What an unpickler raises on bytes that are no pickle, or that misuse the names it admits.
    malformed = (
        pickle.UnpicklingError, EOFError, ArithmeticError, AttributeError, LookupError, MemoryError,
        RecursionError, TypeError, ValueError,
    )  # fmt: skip
    try:
        return _ArrayUnpickler(BytesIO(data), encoding="bytes").load()
    except malformed as error:
        raise DataError(f"{where} is no batch of CIFAR-10: {error}; get {URL}") from error


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2; only with the encoding that it uses for that."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in encoding {encoding!r}")
    return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):
    """Admits what builds an array of numbers; raises UnpicklingError for any other name."""

    # NumPy moved the function between its versions 1 and 2; an array always knows where it is.
    _RECONSTRUCT = np.empty(0).__reduce__()[0]
    _ADMITTED: ClassVar[Mapping[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ADMITTED:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which an array does not need"
            )
        return self._ADMITTED[module, name]
