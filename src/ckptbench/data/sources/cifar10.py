"""CIFAR-10 (Krizhevsky 2009) from its official archive, in the version for Python.

The batches in the archive are pickles. Module `pickled` reads them without trusting them. Nothing is extracted to disk.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ckptbench.data.sources import pickled
from ckptbench.data.sources.archive import download, verify
from ckptbench.data.sources.settings import parse_settings
from ckptbench.data.sources.writing import Block, Content
from ckptbench.errors import DataError
from ckptbench.remedies import blame

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
ARCHIVE = "cifar-10-python.tar.gz"
SETTING = "datasets.cifar10.archive"

TRAIN_SAMPLES = 50_000
IMAGE_SHAPE = (32, 32, 3)
CLASSES = 10
TRAIN_BATCHES = tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "cifar-10-batches-py/test_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar10Settings:
    """Raises TypeError if a value does not have the type of its field."""

    archive: str | None = None
    """Path of the archive. None: ARCHIVE in the dataset's folder, fetched from URL if it is not there."""
    sha256: str = SHA256
    """Expected checksum of the archive. Change it to use another archive with the same layout."""

    def __post_init__(self) -> None:
        if not isinstance(self.archive, str | None):
            raise TypeError(f"archive is {self.archive!r}: use a path or null")
        if not isinstance(self.sha256, str):
            raise TypeError(f"sha256 is {self.sha256!r}: use 64 hexadecimal digits")


def content(folder: Path, settings: Mapping[str, Any]) -> Content:
    """Raises DataError if the archive cannot be fetched or has a wrong checksum or wrong contents."""
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
    """Path of the archive, fetched if necessary and verified."""
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
                # Links are not files here, so they are never followed.
                if member.name in wanted and member.isfile() and (file := tar.extractfile(member)):
                    batches[member.name] = _read_batch(f"{archive}: {member.name}", file.read())
    except OSError as error:
        if error.errno is None:  # gzip's own, of a damaged file
            raise DataError(
                f"{archive}: the archive is damaged: {error}; fetch it again"
            ) from error
        words = blame(error, archive, "fetch it again", reading=True)
        raise DataError(f"{archive}: the archive cannot be read: {words}") from error
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise DataError(f"{archive}: the archive is damaged: {error}; fetch it again") from error
    missing = [name for name in wanted if name not in batches]
    if missing:
        raise DataError(f"{archive}: the archive lacks {', '.join(missing)}; get it from {URL}")
    return batches


def _read_batch(where: str, content: bytes) -> Block:
    """Turn rows of 1,024 red, 1,024 green and 1,024 blue pixels into images (n, 32, 32, 3), and labels (n,)."""
    try:
        batch = pickled.load(content)
        rows, labels = batch[b"data"].bytes_array(), batch[b"labels"]
        height, width, channels = IMAGE_SHAPE
        images = rows.reshape(len(labels), channels, height, width).transpose(0, 2, 3, 1)
        _check_labels(labels)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            f"{where} is no batch of CIFAR-10 ({error}); get the archive from {URL}"
        ) from error
    return images, np.asarray(labels, np.int64)


def _check_labels(labels: object) -> None:
    if not (
        isinstance(labels, list)
        and labels
        and all(isinstance(label, int) and 0 <= label < CLASSES for label in labels)
    ):
        raise ValueError(f"its labels are not a list of whole numbers from 0 to {CLASSES - 1}")
