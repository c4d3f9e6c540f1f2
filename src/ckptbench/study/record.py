"""`results/study.json`: what the workflow writes when it starts, and what runs and scripts look up."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.errors import ConfigError, RunFolderError
from ckptbench.machine.files import read_json, write_json
from ckptbench.matrix.cell import Cell
from ckptbench.runs.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """The cells of a study, and how its runs are carried out. The defaults are those of a run without a study."""

    cells: tuple[Cell, ...] = ()
    """In the order to run them."""
    training: Training | None = None
    """How every cell trains. None: a run without a study."""
    resume: bool = False
    """Whether an interrupted run goes on from its newest complete checkpoint."""
    keep_after_run: int = 0
    """Versions of the checkpoint that stay when a run has ended."""
    run_minutes: float | None = None
    """A run that takes longer is ended. None: no limit."""
    repeat: bool = False
    """Whether the user has forced outputs to be made again, so that sealed runs are trained again."""

    @property
    def timeout_seconds(self) -> float | None:
        return None if self.run_minutes is None else 60 * self.run_minutes

    def write(self, path: Path) -> None:
        """Write the file, in a folder that is made where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            path,
            {
                "cells": [cell.to_json() for cell in self.cells],
                "training": None if self.training is None else dataclasses.asdict(self.training),
                "resume": self.resume,
                "keep_after_run": self.keep_after_run,
                "run_minutes": self.run_minutes,
                "repeat": self.repeat,
            },
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError where the file is missing, or not as `write` writes it."""
        match read_json(path):
            case {
                "cells": [*cells],
                "training": (dict() | None) as training,
                "resume": bool(resume),
                "keep_after_run": int(keep_after_run),
                "run_minutes": (int() | float() | None) as run_minutes,
                "repeat": bool(repeat),
            }:
                return cls(
                    cells=tuple(_cell(path, cell) for cell in cells),
                    training=None if training is None else _training(path, training),
                    resume=resume,
                    keep_after_run=keep_after_run,
                    run_minutes=run_minutes,
                    repeat=repeat,
                )
        raise _refused(
            path,
            "cells, training, resume, keep_after_run, run_minutes or repeat is missing or wrong",
        )


def _cell(path: Path, fields: dict[str, object]) -> Cell:
    try:
        return Cell.from_json(fields)
    except (ConfigError, KeyError, TypeError) as error:
        raise _refused(path, f"it lists a cell that is none of this version: {error}") from error


def _training(path: Path, fields: dict[str, Any]) -> Training:
    try:
        return Training(**fields)
    except TypeError as error:
        raise _refused(path, f"its training is none of this version: {error}") from error


def _refused(path: Path, what: str) -> RunFolderError:
    return RunFolderError(
        f"{path}: not the record of a study: {what}; start the workflow again, which writes it anew"
    )
