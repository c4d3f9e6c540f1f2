"""Everything a rank needs to know about its run, as one file: `plan.json`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.cells import Cell
from ckptbench.manifest import read_json, write_json

PLAN = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How every cell trains: what the study fixes rather than sweeps."""

    seed: int
    learning_rate: float
    momentum: float
    weight_decay: float
    steps_per_epoch: int | None
    """At most this many steps an epoch; None for the whole training set."""
    test_samples: int | None
    """Evaluate on at most this many samples of the test set; None for all, 0 for no evaluation."""
    warmup_steps: int
    """First steps of a run that are timed apart and left out of rates."""
    keep_during_run: int
    """Checkpoint versions kept while training; older ones are removed after each commit."""
    proof: bool = False
    """Record digests of the whole state at every epoch, and keep all tensors of the end (`manifest.KEPT_BYTES`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run: its cell, how it trains, and where everything lies."""

    cell: Cell
    training: Training
    dataset_folder: Path
    run_folder: Path
    checkpoint_folder: Path
    attempt: int = 1
    resume_from: Path | None = None
    """The checkpoint version to go on from; the launcher has checked every byte of it."""
    kills: int = 0
    """How often this run has been killed as its history asks."""

    @property
    def seed(self) -> int:
        """Repeats differ in their seed; a cell and its baseline share it."""
        return self.training.seed + self.cell.repeat

    def write(self) -> Path:
        path = self.run_folder / PLAN
        write_json(path, self.to_json())
        return path

    def to_json(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {
            name: str(value) if isinstance(value, Path) else value for name, value in fields.items()
        }
        return {**plain, "cell": self.cell.to_json(), "training": dataclasses.asdict(self.training)}

    @classmethod
    def read(cls, path: Path) -> Self:
        content = read_json(path)
        paths = ("dataset_folder", "run_folder", "checkpoint_folder", "resume_from")
        folders = {name: Path(content[name]) for name in paths if content[name] is not None}
        return cls(
            **{
                **content,
                **folders,
                "cell": Cell.from_json(content["cell"]),
                "training": Training(**content["training"]),
            }
        )
