"""The gene expressions of CANDLE's benchmark NT3, from the two official files, which the user downloads.

Every line of a file is a sample: its class, 0 (normal) or 1 (tumour), and 60,483 values, separated by commas. There is
no header. As in the benchmark (`load_data` of `Pilot1/NT3/nt3_baseline_keras2.py` in the repository
ECP-CANDLE/Benchmarks), every column is divided by the largest magnitude that it has in both files together, as
scikit-learn's MaxAbsScaler does, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import DataError
from ckptbench.common.files import file_sha256, unreadable
from ckptbench.data.dataset import SPLITS, Split
from ckptbench.data.sources.source import Content, Source

URL = "https://ftp.mcs.anl.gov/pub/candle/public/benchmarks/Pilot1/normal-tumor/"
"""`data_url` of `Pilot1/NT3/nt3_default_model.txt`, by HTTPS: the server publishes no checksums of its files."""
FILES: Mapping[Split, str] = {"train": "nt_train2.csv", "test": "nt_test2.csv"}
SAMPLES: Mapping[Split, int] = {"train": 1120, "test": 280}
VALUES = 60_483
REMEDY = f"download {' and '.join(FILES.values())} from {URL} and give their folder"

SMALLEST_SCALE = 10 * np.finfo(np.float32).eps
"""A column whose values are all smaller stays as it is: MaxAbsScaler takes it for constant."""


@dataclass(frozen=True, kw_only=True)
class Nt3(Source):
    """The 1,120 training and 280 test samples of [CANDLE's benchmark](../docs/names.md#models), with 2 classes.

    Each has 60,483 × 1 × 1 values. Download both files from
    <https://ftp.mcs.anl.gov/pub/candle/public/benchmarks/Pilot1/normal-tumor/>. `deepfreeze.yaml` has
    synthetic data of this shape.
    """

    name = "nt3"
    folder: str | None = field(
        default=None,
        metadata={
            "description": "The folder of `nt_train2.csv` and `nt_test2.csv`; needed where a cell names the dataset."
        },
    )

    @property
    def train_samples(self) -> int:
        return SAMPLES["train"]

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        return VALUES, 1, 1

    def _files(self) -> dict[Split, Path]:
        folder = Path(self.folder or "").expanduser()
        return {split: folder / name for split, name in FILES.items()}

    def missing(self, is_made: bool) -> tuple[str, str] | None:
        if self.folder is None:
            return None if is_made else ("folder", f"the dataset nt3 needs it: {REMEDY}")
        faults = filter(None, map(unreadable, self._files().values()))
        return next((("folder", f"{fault}: {REMEDY}") for fault in faults), None)

    def identity(self) -> dict[str, Any]:
        """The checksums of the files, where the folder is known."""
        if self.folder is None:
            return {}
        files = self._files().values()
        return {"files": [file_sha256(path) if path.is_file() else None for path in files]}

    def content(self, folder: Path) -> Content:
        """Raises DataError if a file cannot be read or is not the official one as far as shape and values tell."""
        if self.folder is None:
            raise DataError(f"datasets.nt3.folder is not set: {REMEDY}")
        read = {split: _read(path, SAMPLES[split]) for split, path in self._files().items()}
        largest = np.maximum(*(np.abs(values).max(axis=0) for _, values in read.values()))
        largest[largest < SMALLEST_SCALE] = 1
        for _, values in read.values():
            np.divide(values, largest, out=values)
        return Content(
            source=URL,
            sample_shape=self.sample_shape,
            sample_dtype=np.float32,
            classes=2,
            samples=SAMPLES,
            blocks={
                split: [(read[split][1].reshape(-1, *self.sample_shape), read[split][0])]
                for split in SPLITS
            },
        )


def _read(path: Path, samples: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Classes (n,) and values (n, VALUES) of a file. Raises DataError where it is not one of the two official ones."""
    try:
        table = np.loadtxt(path, np.float32, delimiter=",", comments=None, ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}; {REMEDY}") from error
    if table.shape != (samples, VALUES + 1):
        raise _wrong(path, f"{table.shape[0]:,} lines of {table.shape[1]:,} columns, expected {samples:,} of {VALUES + 1:,}")  # fmt: skip
    if not np.isfinite(table).all():
        line, column = np.argwhere(~np.isfinite(table))[0] + 1
        raise _wrong(path, f"line {line}, column {column} is not a finite number in float32")
    if not np.isin(table[:, 0], (0, 1)).all():
        line = int(np.argmin(np.isin(table[:, 0], (0, 1)))) + 1
        raise _wrong(
            path, f"line {line} begins with {table[line - 1, 0]:g}, expected the class, 0 or 1"
        )
    return table[:, 0].astype(np.int64), np.ascontiguousarray(table[:, 1:])


def _wrong(path: Path, fault: str) -> DataError:
    return DataError(f"{path}: {fault}; {REMEDY}")
