"""The datasets, and the preparation of each into a folder that `ckptbench.inputs.datasets.dataset` reads.

Every subclass of Source in a module of this package is a dataset.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptbench.common.errors import DataError, RunFolderError
from ckptbench.common.files import read_json
from ckptbench.inputs.datasets.dataset import DESCRIPTION, Dataset
from ckptbench.inputs.datasets.sources.source import Source
from ckptbench.inputs.datasets.sources.writing import write_dataset

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

DATASETS: Mapping[str, type[Source]] = {each.name: each for each in Source.__subclasses__()}


def source_of(name: str, settings: Mapping[str, Any]) -> Source:
    """The dataset with these settings. Raises DataError for a setting that it does not have or take."""
    try:
        return DATASETS[name](**settings)
    except (TypeError, ValueError) as error:
        raise DataError(f"datasets.{name}: {error}") from error


def prepare(name: str, folder: Path, settings: Mapping[str, Any]) -> Dataset:
    """Prepare the dataset in `folder` and open it. An older one there is replaced once the new one is whole.

    Raises DataError if a setting is wrong, the source cannot be had, or the folder cannot be written.
    """
    source = source_of(name, settings)
    write_dataset(folder, name, source.content(folder), made_from(source))
    return Dataset.open(folder)


def made_from(source: Source) -> dict[str, Any]:
    """What a dataset would be made from now, as JSON: what its samples depend on, and the source of this package."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return {**source.identity(), "source_sha256": code.hexdigest()}


def changes(folder: Path, source: Source) -> list[str]:
    """What has changed since the dataset in `folder` was made. Empty too where there is none."""
    try:
        noted = read_json(folder / DESCRIPTION).get("made_from")
    except RunFolderError:
        return [DESCRIPTION] if (folder / DESCRIPTION).exists() else []
    if not isinstance(noted, dict):
        return [DESCRIPTION]
    return [name for name, value in made_from(source).items() if noted.get(name) != value]
