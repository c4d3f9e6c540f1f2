"""The registry of datasets, and how each becomes a folder that `ckptbench.data` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckptbench.data import Dataset
from ckptbench.datasets import cifar10, digits, synthetic
from ckptbench.datasets.writing import Content, write_dataset
from ckptbench.errors import DataError

DATASETS: Mapping[str, Callable[[Path, Mapping[str, Any]], Content]] = {
    "digits": digits.content,
    "cifar10": cifar10.content,
    "synthetic": synthetic.content,
}


def prepare(name: str, folder: Path, settings: Mapping[str, Any]) -> Dataset:
    """Make `folder` the dataset `name` and open it; what lay there before is replaced only by a whole one.

    `settings` are those of the dataset's section of the config. Raises DataError where a setting, the
    source or the folder does not do.
    """
    if name not in DATASETS:
        raise DataError(f'unknown dataset "{name}": use {", ".join(DATASETS)}')
    write_dataset(folder, name, DATASETS[name](folder, settings))
    return Dataset.open(folder)
