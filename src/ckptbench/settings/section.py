"""Models of what a file may set: a mapping of fields, each with its type and bounds."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ckptbench.errors import ConfigError
from ckptbench.settings.refusal import refusal
from ckptbench.settings.sources import Sources

Model = TypeVar("Model", bound="Section")


class Section(BaseModel):
    """A mapping of fields. Unknown keys are errors, so that a typing error is not a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def checked(model: type[Model], sources: Sources) -> Model:
    """The content of the files as this model. Raises ConfigError with one line for each wrong value."""
    try:
        return model.model_validate(dict(sources.content))
    except ValidationError as error:
        raise ConfigError(refusal(error, model, sources)) from None
