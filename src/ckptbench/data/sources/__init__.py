"""The registry of datasets, and the preparation of each into a folder that `ckptbench.data.dataset` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckptbench.data.dataset import DESCRIPTION, Dataset
from ckptbench.data.sources import cifar10, digits, nt3, synthetic
from ckptbench.data.sources.writing import Content, write_dataset
from ckptbench.errors import DataError, RunFolderError
from ckptbench.machine.files import file_sha256, read_json

DATASETS: Mapping[str, Callable[[Path, Mapping[str, Any]], Content]] = {
    "digits": digits.content,
    "cifar10": cifar10.content,
    "synthetic": synthetic.content,
    "nt3": nt3.content,
}

ARCHIVE, FOLDER = "archive", "folder"
"""Settings that say where official files lie. What they hold counts: of an archive its preparation checks that."""


def prepare(name: str, folder: Path, settings: Mapping[str, Any]) -> Dataset:
    """Prepare the dataset `name` in `folder` and open it. An older dataset there is replaced once the new one is whole.

    `settings` come from the dataset's section of the config. Raises DataError if a setting is wrong, the source cannot
    be had, or the folder cannot be written.
    """
    if name not in DATASETS:
        raise DataError(f'unknown dataset "{name}": use {", ".join(DATASETS)}')
    write_dataset(folder, name, DATASETS[name](folder, settings), made_from(settings))
    return Dataset.open(folder)


def made_from(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a dataset would be made from now, as JSON: its settings, the files that they name, and the source of this package."""
    source = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source.update(path.read_bytes())
    kept = {name: value for name, value in settings.items() if name not in (ARCHIVE, FOLDER)}
    if folder := settings.get(FOLDER):
        files = (Path(folder) / name for name in nt3.FILES.values())
        kept["files"] = [file_sha256(path) if path.is_file() else None for path in files]
    return {"settings": kept, "source_sha256": source.hexdigest()}


def changes(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    """What has changed since the dataset in `folder` was made. Empty too where there is none.

    The description of a dataset that an older version made holds the parameters of its samples, and not the rest.
    """
    try:
        description = read_json(folder / DESCRIPTION)
    except RunFolderError:
        return [DESCRIPTION] if (folder / DESCRIPTION).exists() else []
    wanted = made_from(settings)
    match description:
        case {"made_from": {"settings": dict(noted), "source_sha256": source}}:
            if FOLDER not in settings:  # nobody knows what the files would be now
                noted.pop("files", None)
            same = {"settings": noted, "source_sha256": source}
            return [name for name in wanted if same[name] != wanted[name]]
        case {"parameters": dict(noted)}:
            given = wanted["settings"]
            return [name for name in given if noted.get(name, given[name]) != given[name]]
    return [DESCRIPTION]
