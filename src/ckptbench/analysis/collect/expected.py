"""Whether run folders hold the runs that were asked for: those of their names, with the study's training and datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json
from ckptbench.matrix.training import COMPARED
from ckptbench.run.layout import MANIFEST, SEAL_COPY
from ckptbench.run.seal import refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What all runs of a study have in common."""

    training: Mapping[str, Any]
    """The fields of `Training`."""
    proven: frozenset[str] = frozenset()
    """Ids of the runs that record a proof, where `training.proof` is COMPARED."""
    listed: Mapping[str, Any] = field(default_factory=dict)
    """By cell, the list of failures that it names."""
    datasets: Mapping[str, str]
    """The `dataset_sha256` of every prepared dataset that is still there, by its name."""


def check_expected(run: Run, expected: Expected | None) -> None:
    """Raises RunFolderError where the folder is not named after the run's cell, or the run is none of the study.

    `expected` is None for a run of no study.
    """
    path = run.folder / MANIFEST
    if (name := run.folder.absolute().name) != run.cell.id:
        raise refused(path, f"is that of the cell {run.cell.id}, and its folder is named {name}")
    if expected is None:
        return
    training, asked = run.manifest["training"], dict(expected.training)
    if asked.get("proof") == COMPARED:
        asked["proof"] = run.cell.id in expected.proven
    for name in {**asked, **training}:
        found, wanted = (each.get(name, "missing") for each in (training, asked))
        if found != wanted:
            raise refused(path, f"training.{name} is {found!r}, the study asks for {wanted!r}")
    found = run.manifest["dataset_sha256"]
    if found != (wanted := expected.datasets.get(run.cell.dataset, found)):
        raise refused(
            path, f"dataset_sha256 is {found}, and {run.cell.dataset} of the study has {wanted}"
        )
    copy = (
        run.folder / SEAL_COPY
    )  # which says what the run was made from; a folder of an older version has none
    if (wanted := expected.listed.get(run.cell.id)) is not None and copy.exists():
        noted = read_json(copy).get("made_from") or {}
        if noted.get("listed", wanted) != wanted:
            raise refused(
                copy,
                f"failures.{run.cell.failure_list} is {noted['listed']}, the study asks for {wanted}",
            )


def check_datasets(runs: Iterable[Run]) -> None:
    """Raises RunFolderError where two runs trained on different datasets of one name, made at different times."""
    first: dict[str, Run] = {}
    for run in runs:
        other = first.setdefault(run.cell.dataset, run)
        if other.manifest["dataset_sha256"] != run.manifest["dataset_sha256"]:
            raise RunFolderError(
                f"{other.folder} and {run.folder}: dataset_sha256 differs, so {run.cell.dataset} was prepared again between them; remove the older "
                "folder to run its cell again"
            )
