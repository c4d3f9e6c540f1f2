"""`results/study.json`: what the workflow writes when it starts, and what runs and verbs look up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.training import Training


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """The cells of a study, and how its runs are carried out: a change of the latter makes no run again. The defaults are those of a run
    without a study."""

    cells: tuple[Cell, ...] = ()
    """In the order to run them."""
    training: Training | None = None
    """How every cell trains. None: a run without a study."""
    resume: bool = False
    """Whether an interrupted run goes on from its newest complete checkpoint."""
    words: str = ""
    """Of which config it is."""
    listed: Mapping[str, Any] = field(default_factory=dict)
    """By cell, the list of failures that it names, as JSON."""
    keep_after_run: int = 0
    """Versions of the checkpoint that stay when a run has ended."""
    run_minutes: float | None = None
    """A run that takes longer is ended. None: no limit."""
    repeat: bool = False
    """Whether the user has forced outputs to be made again, so that sealed runs are trained again."""

    @property
    def timeout_seconds(self) -> float | None:
        return None if self.run_minutes is None else 60 * self.run_minutes

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "cells": [cell.to_json() for cell in self.cells],
            "training": self.training and asdict(self.training),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        cells = tuple(Cell.from_json(cell) for cell in content["cells"])
        told = content["training"]
        training = None if told is None else Training(**told)
        return cls(**{**content, "cells": cells, "training": training})

    def write(self, path: Path) -> None:
        """Write the file, in a folder that is made where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError where the file is missing, or not as `write` writes it."""
        content = read_json(path)
        try:
            if missing := {field.name for field in fields(cls)} - set(content):
                raise KeyError(*missing)
            return cls.from_json(content)
        except (ConfigError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{path}: not the record of a study ({error}); start the workflow again, which rewrites it"
            ) from error
