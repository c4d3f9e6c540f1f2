"""The plan of a run, `plan.json`: all that a rank needs to know about its run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.machine.files import read_json, write_json
from ckptbench.matrix.cell import Cell
from ckptbench.runs.training import Training

PLAN = "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One attempt of a run: its cell, its training settings and its folders."""

    cell: Cell
    training: Training
    dataset_folder: Path
    run_folder: Path
    checkpoint_folder: Path
    attempt: int = 1
    resume_from: Path | None = None
    """The checkpoint version from which training goes on. The launcher has checked every byte of it."""
    kills: int = 0
    """How many of the kills that the cell's history asks for have already happened."""

    @property
    def seed(self) -> int:
        """The seed of the run. Repeats have different seeds; a cell and its baseline have the same."""
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
