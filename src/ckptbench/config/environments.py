"""The environments that are there, as a config names them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ckptbench.common.errors import ConfigError, EnvironmentSetupError
from ckptbench.config.reading import ConfigFiles, FieldError
from ckptbench.config.section import Section
from ckptbench.config.values import FilePath, OneOf
from ckptbench.inputs.environments.present import PresentEnvironment
from ckptbench.matrix.registry import environments

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


EnvironmentName = Annotated[str, OneOf(tuple(environments()))]
EnvironmentSpec = Annotated[
    EnvironmentSection,
    BeforeValidator(_spec, json_schema_input_type=Literal["present"] | EnvironmentSection),
]


def find_environment(
    name: str, spec: EnvironmentSection, modules: Sequence[str], content: Mapping[str, Any], paths: Sequence[Path]
) -> PresentEnvironment:  # fmt: skip
    """The environment of the config, with what it has. Raises ConfigError with its place in the files at `paths`."""
    try:
        return spec.named(name).find(modules)
    except EnvironmentSetupError as error:
        fault = FieldError(("environments", name), str(error))
        raise ConfigError(ConfigFiles(content, paths).explain(fault)) from None
