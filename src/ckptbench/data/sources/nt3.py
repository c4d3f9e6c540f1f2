"""The gene expressions of CANDLE's benchmark NT3, from the two official files, which the user downloads.

Every line of a file is a sample: its class, 0 (normal) or 1 (tumour), and 60,483 values, separated by commas. There is
no header. As in the benchmark (`load_data` of `Pilot1/NT3/nt3_baseline_keras2.py` in the repository
ECP-CANDLE/Benchmarks), every column is divided by the largest magnitude that it has in both files together, as
scikit-learn's MaxAbsScaler does, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.data.dataset import SPLITS, Split
from ckptbench.data.sources.settings import parse_settings
from ckptbench.data.sources.writing import Content
from ckptbench.errors import DataError
from ckptbench.remedies import blame

URL = "https://ftp.mcs.anl.gov/pub/candle/public/benchmarks/Pilot1/normal-tumor/"
"""`data_url` of `Pilot1/NT3/nt3_default_model.txt`, by HTTPS: the server publishes no checksums of its files."""
SETTING = "datasets.nt3.folder"
DOWNLOAD = f"download it from {URL} and set {SETTING} to its folder"
FILES: Mapping[Split, str] = {"train": "nt_train2.csv", "test": "nt_test2.csv"}
SAMPLES: Mapping[Split, int] = {"train": 1120, "test": 280}
VALUES = 60_483
IMAGE_SHAPE = (VALUES, 1, 1)
CLASSES = 2

SMALLEST_SCALE = 10 * np.finfo(np.float32).eps
"""A column whose values are all smaller stays as it is: MaxAbsScaler takes it for constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nt3Settings:
    """Raises TypeError if the folder is not a text."""

    folder: str | None = None
    """Folder of the two files."""

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | None):
            raise TypeError(f"folder is {self.folder!r}: use a path")


def content(folder: Path, settings: Mapping[str, Any]) -> Content:
    """Raises DataError if a file cannot be read or is not the official one as far as shape and values tell."""
    chosen = parse_settings(Nt3Settings, "nt3", settings)
    if chosen.folder is None:
        raise DataError(
            f"datasets.nt3: folder is not set: download {' and '.join(FILES.values())} from {URL} and set "
            f"{SETTING} to their folder"
        )
    labels, images = _read(Path(chosen.folder))
    return Content(
        source=URL,
        parameters={"scaled": "each column by its largest magnitude in both files"},
        image_shape=(VALUES, 1, 1),
        image_dtype=np.float32,
        classes=CLASSES,
        samples=SAMPLES,
        blocks={split: [(images[split], labels[split])] for split in SPLITS},
    )


def _read(folder: Path) -> tuple[dict[Split, NDArray[np.int64]], dict[Split, NDArray[np.float32]]]:
    """Labels (n,) and scaled images (n, VALUES, 1, 1) of both files. One line at a time is held as text."""
    labels = {split: np.empty(SAMPLES[split], np.int64) for split in SPLITS}
    values = {split: np.empty((SAMPLES[split], VALUES), np.float32) for split in SPLITS}
    largest = np.zeros(VALUES, np.float32)
    for split in SPLITS:
        for index, (label, row) in enumerate(_samples(folder / FILES[split], SAMPLES[split])):
            labels[split][index], values[split][index] = label, row
            np.maximum(largest, np.abs(row), out=largest)
    largest[largest < SMALLEST_SCALE] = 1
    for array in values.values():
        np.divide(array, largest, out=array)
    return labels, {split: array.reshape(-1, VALUES, 1, 1) for split, array in values.items()}


def _samples(path: Path, expected: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The class and the values of every line. Raises DataError where the file is not one of the two official ones."""
    found = 0
    try:
        # latin-1 decodes every byte: a file of another kind is found out by its columns.
        with path.open(encoding="latin-1") as file:
            for number, line in enumerate(file, start=1):
                if line.isspace():
                    continue
                found += 1
                if found > expected:
                    raise _wrong(path, f"it has more than {expected:,} samples")
                yield _parsed(path, number, line)
    except OSError as error:
        words = blame(error, path, DOWNLOAD, reading=True)
        raise DataError(f"{path}: it cannot be read: {words}") from error
    if found < expected:
        raise _wrong(path, f"it is cut short: it has {found:,} samples, expected {expected:,}")


def _parsed(path: Path, number: int, line: str) -> tuple[int, NDArray[np.float32]]:
    columns = line.count(",") + 1
    if columns != VALUES + 1:
        raise _wrong(
            path,
            f"line {number} has {columns:,} columns, expected {VALUES + 1:,}: the class and {VALUES:,} values",
        )
    try:
        numbers = np.loadtxt([line], delimiter=",", comments=None, ndmin=1)
    except ValueError as error:
        column, text = _no_number(line)
        raise _wrong(path, f"line {number}, column {column:,} is {text!r}, not a number") from error
    finite = np.abs(numbers) <= np.finfo(np.float32).max
    if not finite.all():
        column = int(np.argmin(finite))
        raise _wrong(
            path,
            f"line {number}, column {column + 1:,} is {numbers[column]:g}, not a finite number in float32",
        )
    if numbers[0] not in range(CLASSES):
        raise _wrong(path, f"line {number} begins with {numbers[0]:g}, expected the class, 0 or 1")
    return int(numbers[0]), numbers[1:].astype(np.float32)


def _no_number(line: str) -> tuple[int, str]:
    """The first column that is no number, from 1, and its text, shortened."""
    for column, text in enumerate(line.rstrip("\n").split(","), start=1):
        try:
            float(text)
        except ValueError:
            return column, text[:20]
    return 1, line[:20]


def _wrong(path: Path, fault: str) -> DataError:
    return DataError(f"{path}: {fault}; {DOWNLOAD}")
