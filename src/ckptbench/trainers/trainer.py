"""`trainers/NAME/trainer.yaml`: how a trainer is started, and what its documentation promises."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from ckptbench.common.errors import ConfigError, all_of
from ckptbench.config.reading import ConfigFiles, FieldError
from ckptbench.config.section import Section, checked
from ckptbench.config.trainers import CHECKS, COLUMNS, WITH_RANKS
from ckptbench.config.values import Count, Flag, OneOf, Text
from ckptbench.matrix.plugin_spec import NAME

FILE = "trainer.yaml"
PLACES = ("ranks", "script", "folder")
"""What a command may have in braces."""


def _command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{error}: close the quotes") from None
    if words and "{folder}" not in text:
        raise ValueError("it needs {folder}, in place of the folder of its checkpoints")
    for place in re.findall(r"{(\w*)}", text):
        if place not in PLACES:
            raise ValueError(f"it may have {', '.join(f'{{{one}}}' for one in PLACES)}, and no {{{place}}}")  # fmt: skip
    return text


Command = Annotated[str, AfterValidator(_command)]
Column = Annotated[str, OneOf(tuple(COLUMNS))]
Check = Annotated[str, OneOf(tuple(CHECKS))]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class Promise(Section):
    """What its documentation says of a column."""

    page: ClassVar[str] = "docs/trainers.md"
    text: Text
    source: Annotated[str, Field(pattern="^https://")]


class Setting(Section):
    """A setting that its documentation offers: a row of its own."""

    page: ClassVar[str] = "docs/trainers.md"
    title: Text
    command: Command
    name: Name | None = None
    resume: Command | None = None
    checks: list[Check] | None = None


class Trainer(Section):
    """The content of the file."""

    page: ClassVar[str] = "docs/trainers.md"
    title: Text
    """Name of the row."""
    environment: Name
    """A lock of `envs`."""
    packages: Annotated[list[str], Field(min_length=1)]
    """Distributions whose versions the row shows."""
    command: Command
    """Starts a training and, run again on the same {folder}, continues it; {script} and {ranks} are filled in."""
    resume: Command = ""
    """Only where continuing takes another command."""
    ranks: Count = 1
    """Ranks that it can start."""
    shards: Flag = False
    """Whether each rank writes a part of the state. If false, the checks of saves use one rank."""
    epoch: Annotated[int, Field(strict=True, ge=2)]
    """Updates per epoch; a training makes three epochs or more."""
    every: Count | None = None
    """Updates between two saves. Without: a third of an epoch."""
    promises: dict[Column, Promise] = Field(default={})
    """By column, what its documentation says: `text`, of at most ten words, and `source`, its address."""
    settings: list[Setting] = Field(default=[])
    """Each is a row of its own: `title` and `command` with a setting that its documentation offers, and `checks`, those that it concerns."""
    checks: list[Check] = Field(default=[*CHECKS])
    """Checks that the row takes, as of a control that is wrong for some of them."""
    control: Annotated[str, Field(pattern="^(right|wrong: .+|)$")] = ""
    """`right`, or `wrong: <part>`, of a script that shows that the checks can say yes and no."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, content: Any) -> Any:
        """A key without a value says nothing."""
        return {name: value for name, value in content.items() if value is not None} if isinstance(content, dict) else content  # fmt: skip

    @property
    def saves_every(self) -> int:
        return self.every or max(1, self.epoch // 3)

    @model_validator(mode="after")
    def _saves_at_epochs_end(self) -> Self:
        if self.epoch % self.saves_every:
            raise ValueError(f"epoch is {self.epoch}, and saves come every {self.saves_every} updates: let every divide epoch")  # fmt: skip
        return self


@dataclass(frozen=True, slots=True)
class Row:
    """A trainer, or one with a setting: what is checked under one name."""

    name: str
    title: str
    folder: Path
    """Of the trainer."""
    trainer: Trainer
    command: str
    resume: str
    checks: tuple[str, ...]
    """That it takes."""

    @property
    def script(self) -> Path:
        return _script(self.folder)

    def words(self, command: str) -> list[str]:
        """Of a command, with {folder} and {ranks} left in."""
        return [word.replace("{script}", str(self.script.absolute())) for word in shlex.split(command)]  # fmt: skip

    def ranks(self, check: str) -> int:
        """That this check takes."""
        return self.trainer.ranks if self.trainer.shards or check in WITH_RANKS else 1


def rows(folder: Path, names: Sequence[str] | None = None) -> list[Row]:
    """Of the trainers with these names, or of all in the folder. Raises ConfigError with a line for each wrong value."""
    there = sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))
    if not there:
        raise ConfigError(f"{folder}: no folder of it has a {FILE}: docs/trainers.md says how to add a trainer")  # fmt: skip
    for name in names or ():
        if name not in there:
            raise FieldError(("trainers", "names"), f"{folder} has {', '.join(there)}", name)
    return [row for some in all_of(partial(_rows, folder / name) for name in names or there) for row in some]  # fmt: skip


def _rows(folder: Path) -> list[Row]:
    files = ConfigFiles.of(folder / FILE)
    trainer = checked(Trainer, files)
    _script(folder)
    return [Row(**fields) for fields in _fields(folder, trainer)]


def _fields(folder: Path, trainer: Trainer) -> Iterator[dict[str, Any]]:
    own = {"folder": folder, "trainer": trainer}
    name = folder.name
    yield {**own, "name": name, "title": trainer.title, "command": trainer.command, "resume": trainer.resume, "checks": tuple(trainer.checks)}  # fmt: skip
    for number, one in enumerate(trainer.settings, 1):
        yield {
            **own, "name": f"{name}_{one.name or number}", "title": one.title, "command": one.command,
            "resume": trainer.resume if one.resume is None else one.resume,
            "checks": tuple(trainer.checks if one.checks is None else one.checks),
        }  # fmt: skip


def _script(folder: Path) -> Path:
    """Raises ConfigError where it is not known which one it is."""
    found = sorted(folder.glob("*.py"))
    named = [path for path in found if path.name == "train.py"] or found
    if len(named) != 1:
        raise ConfigError(f"{folder}: it has {len(found)} scripts: have one, or name it train.py")
    return named[0]


def row_of(folder: Path, name: str) -> Row:
    """Raises ConfigError where there is none of this name."""
    found = {row.name: row for row in rows(folder)}
    if name not in found:
        raise ConfigError(f"{folder} has no trainer {name}: it has {', '.join(found)}")
    return found[name]
