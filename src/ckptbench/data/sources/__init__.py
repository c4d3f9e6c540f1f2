"""The registry of datasets, and the preparation of each into a folder that `ckptbench.data.dataset` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckptbench.data.dataset import Dataset
from ckptbench.data.sources import cifar10, digits, nt3, synthetic
from ckptbench.data.sources.writing import Content, write_dataset
from ckptbench.errors import DataError

DATASETS: Mapping[str, Callable[[Path, Mapping[str, Any]], Content]] = {
    "digits": digits.content,
    "cifar10": cifar10.content,
    "synthetic": synthetic.content,
    "nt3": nt3.content,
}


def prepare(name: str, folder: Path, settings: Mapping[str, Any]) -> Dataset:
    """Prepare the dataset `name` in `folder` and open it. An older dataset there is replaced once the new one is whole.

    `settings` come from the dataset's section of the config. Raises DataError if a setting is wrong, the source cannot
    be had, or the folder cannot be written.
    """
    if name not in DATASETS:
        raise DataError(f'unknown dataset "{name}": use {", ".join(DATASETS)}')
    write_dataset(folder, name, DATASETS[name](folder, settings))
    return Dataset.open(folder)
