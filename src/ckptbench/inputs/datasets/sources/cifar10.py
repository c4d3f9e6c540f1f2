"""CIFAR-10 (Krizhevsky 2009) from its official archive, in the version for Python.

The batches in the archive are pickles, which could run any code: they are read after the archive's checksum was found
right. Nothing is extracted to disk.
"""

from __future__ import annotations

import http.client
import pickle
import shutil
import tarfile
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ckptbench.common.errors import DataError
from ckptbench.common.files import file_sha256, unreadable
from ckptbench.common.removal import remove_or_warn
from ckptbench.inputs.datasets.sources.source import Block, Content, Source

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
ARCHIVE = "cifar-10-python.tar.gz"
TIMEOUT_SECONDS = 60
TRAIN_BATCHES = tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "cifar-10-batches-py/test_batch"


@dataclass(frozen=True, kw_only=True)
class Cifar10(Source):
    """50,000 training and 10,000 test images of 32 × 32 × 3."""

    name = "cifar10"
    train_samples = 50_000
    sample_shape = (32, 32, 3)
    classes = 10
    archive: str | None = field(
        default=None,
        metadata={
            "description": f"The official `{ARCHIVE}`, whose SHA-256 is checked. Without: download it."
        },
    )

    def missing(self, is_made: bool) -> tuple[str, str] | None:
        if self.archive is None or (fault := unreadable(self._path(Path()))) is None:
            return None
        return (
            "archive",
            f"{fault}: give the path of the official {ARCHIVE}, or null to download it",
        )

    def identity(self) -> dict[str, Any]:
        return {"sha256": SHA256}

    def content(self, folder: Path) -> Content:
        """Raises DataError if the archive cannot be fetched or has a wrong checksum."""
        archive = self._path(folder)
        if self.archive is None and not archive.exists():
            download(archive)
        check(archive)
        batches = read_batches(archive)
        train, test = [batches[name] for name in TRAIN_BATCHES], [batches[TEST_BATCH]]
        return Content(
            source=URL,
            sample_shape=self.sample_shape,
            classes=self.classes,
            samples={"train": sum(len(labels) for _, labels in train), "test": len(test[0][1])},
            blocks={"train": train, "test": test},
        )

    def _path(self, folder: Path) -> Path:
        return folder / ARCHIVE if self.archive is None else Path(self.archive).expanduser()


def check(archive: Path) -> None:
    """Raises DataError if the archive cannot be read or is not the official one."""
    remedy = f"set datasets.cifar10.archive to a copy of {URL}"
    if fault := unreadable(archive):
        raise DataError(f"{fault}; {remedy}")
    if (found := file_sha256(archive)) != SHA256:
        raise DataError(
            f"{archive}: incomplete, or not the expected archive: its SHA-256 is {found}, expected {SHA256}; "
            f"remove it, or {remedy}"
        )


def download(archive: Path) -> None:
    """Fetch the archive, which appears only when it is complete. Raises DataError if that fails."""
    partial = archive.with_name(archive.name + ".partial")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(URL, timeout=TIMEOUT_SECONDS) as response,
            partial.open("wb") as file,
        ):
            shutil.copyfileobj(response, file)
        partial.replace(archive)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{URL} cannot be fetched to {archive}: {reason}; fetch it elsewhere and set datasets.cifar10.archive to its path"
        ) from error
    finally:
        remove_or_warn(partial)


def read_batches(archive: Path) -> dict[str, Block]:
    """Images (n, 32, 32, 3) and labels (n,) of the six batches, by their names in the archive. A row holds 1,024 red,
    1,024 green and 1,024 blue pixels.
    """
    batches: dict[str, Block] = {}
    with tarfile.open(archive, "r:gz") as tar:
        for name in (*TRAIN_BATCHES, TEST_BATCH):
            file = tar.extractfile(name)
            assert file is not None
            batch = pickle.load(file, encoding="bytes")  # its checksum was checked
            images = batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            batches[name] = images, np.asarray(batch[b"labels"], np.int64)
    return batches
