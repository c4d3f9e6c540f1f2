"""`results/study.json`: what the workflow writes when it starts, and what runs and scripts look up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import PlainSerializer, PlainValidator, ValidationError

from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.config.section import Section
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.training import Training


def _cell(value: Cell | dict[str, object]) -> Cell:
    return value if isinstance(value, Cell) else Cell.from_json(value)


class Record(Section):
    """What the records of both kinds of studies have. A change of it makes no run again."""

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
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError where the file is missing, or not as `write` writes it."""
        content = read_json(path)
        try:
            if missing := set(cls.model_fields) - set(content):
                raise KeyError(*missing)
            return cls.model_validate(content)
        except (ValidationError, ConfigError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise RunFolderError(
                f"{path}: not the record of a study ({reason}); start the workflow again, which writes it anew"
            ) from error


class StudyRecord(Record):
    """The cells of a study, and how its runs are carried out. The defaults are those of a run without a study."""

    cells: tuple[Annotated[Cell, PlainValidator(_cell), PlainSerializer(Cell.to_json)], ...] = ()
    """In the order to run them."""
    training: Training | None = None
    """How every cell trains. None: a run without a study."""
    resume: bool = False
    """Whether an interrupted run goes on from its newest complete checkpoint."""
    keep_after_run: int = 0
    """Versions of the checkpoint that stay when a run has ended."""
