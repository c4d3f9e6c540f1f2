"""Runs of a training that are here already, and how long they took."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import fmean

from ckptbench.common.errors import CkptbenchError
from ckptbench.common.files import read_json
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.training import CHOSEN_LATER, COMPARED, Training
from ckptbench.run.layout import MANIFEST, SEAL

SETUP = attrgetter(
    *("framework", "model", "dataset", "ranks", "batch_size", "epochs"),
    *("optimizer", "precision", "deterministic", "accelerator"),
)
"""What the time of a run depends on most."""


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Runs of this training that are here, and how many minutes each took."""

    of_cell: dict[str, list[float]] = field(default_factory=dict)
    """By the name of the cell without its repeat."""
    of_setup: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    """By SETUP, of runs that nothing disturbed."""
    done: set[str] = field(default_factory=set)
    """Ids of all that are sealed, also of those that were interrupted, whose time tells nothing."""

    @classmethod
    def read(cls, runs: Path, training: Training) -> EarlierRuns:
        """From the manifests in the folder of the runs."""
        found = cls()
        wanted = dataclasses.asdict(training)
        either = {"proof": COMPARED} if training.proof == COMPARED else {}
        for path in runs.glob(f"*/{MANIFEST}"):
            try:
                manifest = read_json(path)
                if {**CHOSEN_LATER, **manifest["training"], **either} != wanted:
                    continue
                cell, minutes = Cell.from_json(manifest["cell"]), manifest["duration_s"] / 60
                is_whole = manifest["status"] == "complete" and manifest["attempts"] == 1
            except (CkptbenchError, AttributeError, KeyError, TypeError, ValueError):
                continue  # of an earlier version, damaged, or not ended: it tells no time
            if path.with_name(SEAL).exists():
                found.done.add(cell.id)
            if is_whole:
                found.of_cell.setdefault(_without_repeat(cell), []).append(minutes)
            if is_whole and cell.is_undisturbed:
                found.of_setup.setdefault(SETUP(cell), []).append(minutes)
        return found

    def minutes(self, cell: Cell) -> float | None:
        """The mean of the same cell's runs, or else of those that differ in how they save. None: there are no such runs."""
        times = self.of_cell.get(_without_repeat(cell)) if self.of_cell else None
        if times is None and cell.is_undisturbed:
            times = self.of_setup.get(SETUP(cell))
        return fmean(times) if times else None


def _without_repeat(cell: Cell) -> str:
    return cell.id.rpartition("-")[0]
