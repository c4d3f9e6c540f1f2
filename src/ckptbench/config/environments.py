"""The environments that are there, as a config names them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ckptbench.common.errors import ConfigError, EnvironmentSetupError
from ckptbench.config.reading import ConfigFiles, FieldError
from ckptbench.config.section import Section
from ckptbench.config.values import FilePath, OneOf
from ckptbench.inputs.environments.folder import READY
from ckptbench.inputs.environments.present import PresentEnvironment
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.registry import DATA, environments

DIGITS = "digits"
"""The dataset that is a part of scikit-learn."""

OF_TRAINERS = ("trainers", "trainers_more")
"""Environments that no framework of the study has."""
USE = "use present, {python: PATH} or {command: PROGRAM ARGUMENTS}"


class EnvironmentSection(Section):
    """What starts the Python of an environment: one of the two."""

    python: FilePath | None = None
    """Its path, or its name on PATH."""
    command: Annotated[str, Field(pattern=r"\S")] | None = None
    """What enters a container and starts its Python: words as in a shell, without its variables and pipes."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.python is None) == (self.command is None):
            raise ValueError(USE)
        return self

    def named(self, name: str) -> PresentEnvironment:
        """The environment of this name. Raises EnvironmentSetupError where there is no such program."""
        if self.command is None:
            return PresentEnvironment.of_python(name, str(self.python))
        try:
            return PresentEnvironment(name, tuple(shlex.split(self.command)), is_entry=True)
        except ValueError as error:
            raise EnvironmentSetupError(f"{error}: close the quotes") from None


def _spec(value: object) -> object:
    if value == "present":
        return {"python": "python"}
    if isinstance(value, Mapping | EnvironmentSection):
        return value
    raise ValueError(USE)


EnvironmentName = Annotated[str, OneOf((*environments(), *OF_TRAINERS))]
EnvironmentSpec = Annotated[
    EnvironmentSection,
    BeforeValidator(_spec, json_schema_input_type=Literal["present"] | EnvironmentSection),
]


def find_environment(
    name: str, spec: EnvironmentSection, modules: Sequence[str], sources: ConfigFiles
) -> PresentEnvironment:
    """The environment of the config, with what it has. Raises ConfigError with its place in the files."""
    try:
        return spec.named(name).find(modules)
    except EnvironmentSetupError as error:
        fault = FieldError(("environments", name), str(error))
        raise ConfigError(sources.explain(fault)) from None


def find_environments(
    specs: Mapping[str, EnvironmentSection], needs: Mapping[str, Sequence[str]], sources: ConfigFiles, folder: Path
) -> tuple[dict[str, PresentEnvironment], dict[str, ConfigError]]:  # fmt: skip
    """Those that are used, by name; and why one is away that was there, as its description in `folder` says.

    `needs`: the modules that are imported from each. It is no error until a run needs it. Raises ConfigError for one that was never there.
    """
    found, away = {}, {}
    for name, modules in needs.items():
        if name not in specs:
            continue
        try:
            found[name] = find_environment(name, specs[name], modules, sources)
        except ConfigError as error:
            if not (folder / name / READY).exists():
                raise
            found[name], away[name] = PresentEnvironment.read(folder / name), error
    return found, away


def read_environments(
    specs: Mapping[str, EnvironmentSection], needs: Iterable[str], folder: Path
) -> dict[str, PresentEnvironment]:
    """Those that are used, as they are described in `folder`. One of which nothing is there yet is left out."""
    return {
        name: PresentEnvironment.read(folder / name)
        for name in needs
        if name in specs and (folder / name / READY).exists()
    }


def imports(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The modules that the cells, and the preparation of their datasets, import from each environment."""
    found = {DATA: dict.fromkeys(["numpy"])}
    for cell in cells:
        found.setdefault(present_name(cell.environment), {}).update(dict.fromkeys(cell.imports))
        if cell.dataset == DIGITS:
            found[DATA]["sklearn"] = None
    return {name: [*modules] for name, modules in found.items()}


def present_name(environment: str) -> str:
    """Under which name a config says where an environment is. One for GPUs has the same name."""
    return environment.removesuffix("-cuda")
