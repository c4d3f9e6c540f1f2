"""Which finished runs are outdated: made from something else than the study asks for now."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench.data.dataset import dataset_sha256
from ckptbench.environments.folder import environment_sha256
from ckptbench.environments.lock_file import pinned_sha256
from ckptbench.environments.ready import described
from ckptbench.errors import DataError
from ckptbench.matrix.cell import Cell
from ckptbench.runs.finished import changes_since, made_from
from ckptbench.runs.layout import SEAL
from ckptbench.runs.plan import Plan
from ckptbench.runs.training import Training

DATASET = "dataset_sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRuns:
    """What the runs of a study are made from now."""

    training: Training
    runs: Path
    """The folder of run folders."""
    checkpoints: Path
    """The folder of checkpoints; that of the runs where the config names no other."""
    datasets: Path
    outdated_datasets: frozenset[str]
    """Names of the datasets that will be made again."""
    locks: Path
    constraints: Path
    levels: Mapping[str, str | None]
    """See `made_from`."""
    listed: Mapping[str, Sequence[Mapping[str, Any]]]
    """The lists of failures, by name."""

    def changes(self, cells: Iterable[Cell]) -> dict[str, list[str]]:
        """What has changed since the sealed runs of these cells were made, by the id of each outdated cell."""
        sha256_of = functools.cache(self._dataset_sha256)
        packages_of = functools.cache(self._packages)
        found = {}
        for cell in cells:
            folder = self.runs / cell.id
            if not (folder / SEAL).exists():
                continue
            if cell.dataset in self.outdated_datasets:
                found[cell.id] = [f"the dataset {cell.dataset}"]
                continue
            sha256 = sha256_of(cell.dataset)
            wanted = self._wanted(cell, sha256 or "", *packages_of(cell.environment))
            if sha256 is None:  # it is not there: nobody knows what it would be
                del wanted[DATASET]
            if changed := changes_since(folder, wanted):
                found[cell.id] = changed
        return found

    def _wanted(
        self, cell: Cell, dataset_sha256: str, lock_sha256: str, environment_sha256: str
    ) -> dict[str, Any]:
        plan = Plan(
            cell=cell,
            training=self.training,
            dataset_folder=self.datasets / cell.dataset,
            run_folder=self.runs / cell.id,
            checkpoint_folder=(self.checkpoints / cell.id / "checkpoints").resolve(),
            dataset_sha256=dataset_sha256,
            lock_sha256=lock_sha256,
            listed=tuple(self.listed.get(str(dict(cell.faults.options).get("name")), ())),
        )
        return made_from(plan, environment_sha256=environment_sha256, levels=self.levels)

    def _dataset_sha256(self, dataset: str) -> str | None:
        try:
            return dataset_sha256(self.datasets / dataset)
        except DataError:
            return None

    def _packages(self, environment: str) -> tuple[str, str]:
        """SHA-256 of the lock, and of what an environment that is made from it says of itself."""
        lock = self.locks / f"{environment}.txt"
        return pinned_sha256(lock), environment_sha256(described(lock, self.constraints))
