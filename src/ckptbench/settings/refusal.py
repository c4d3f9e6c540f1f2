"""The words of a wrong value, from what pydantic says of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ckptbench.matrix.shown import number_hint
from ckptbench.settings.sources import (
    COMMAND_LINE,
    FieldError,
    Location,
    Sources,
    dotted,
    shortened,
)
from ckptbench.settings.values import NUMBER

_WORDS = {
    "model_type": "use a mapping of fields (config/README.md lists them), or remove the key",
    "dict_type": "use a mapping from names to values",
    "list_type": "use a list, each entry a mapping of fields of matrix",
    "too_short": "give at least one value",
    "bool_type": "use true or false",
}
"""What is allowed, by the type of pydantic's error. The validators of ckptbench say it in their own messages."""


def refusal(error: ValidationError, model: type[BaseModel], sources: Sources) -> str:
    """A line for each wrong value: file, field, value and remedy. After MOST_LINES the rest is counted."""
    return shortened([_line(entry, model, sources) for entry in error.errors(include_url=False)])


def _line(entry: Any, model: type[BaseModel], sources: Sources) -> str:
    location = entry["loc"]
    if entry["type"] == "missing":
        return sources.explain(FieldError(location, "there is no value: add this field"))
    if entry["type"] == "extra_forbidden":
        suggestion = _suggestion(location, model)
        remedy = f"there is no such field{suggestion or ';'} config/README.md lists them all"
    elif entry["type"] == "literal_error":
        remedy = f"use {entry['ctx']['expected']}"
    else:
        remedy = _WORDS.get(entry["type"], entry["msg"].removeprefix("Value error, "))
    if isinstance(entry["input"], str):
        remedy += _hint(entry, sources.file_of(location))
    return sources.explain(FieldError(location, remedy, entry["input"]))


def _hint(entry: Any, file: str) -> str:
    """More of the remedy where a text stands for a number, or for true or false."""
    if entry["type"] in (NUMBER, "bool_type") and file == COMMAND_LINE and len(entry["loc"]) > 1:
        return "; --config reads values in brackets as text: set them in a file, and name it with --configfile"
    return number_hint(entry["input"]) if entry["type"] == NUMBER else ""


def _suggestion(location: Location, model: type[BaseModel]) -> str:
    """The field that was perhaps meant: one with a similar name in the same section, or the same name elsewhere."""
    fields = dict(_fields(model, ()))
    section = tuple(part for part in location[:-1] if isinstance(part, str))
    own = fields.get(section, [])
    similar = difflib.get_close_matches(str(location[-1]), own, 1)
    elsewhere = [
        dotted((*other, location[-1])) for other in fields if location[-1] in fields[other]
    ]
    found = [*similar, *elsewhere][:1]
    return f"; did you mean {found[0]}?" if found else ""


def _fields(
    model: type[BaseModel], section: tuple[str, ...]
) -> Iterator[tuple[Location, list[str]]]:
    """The names of the fields of each section, by the section's place."""
    yield section, list(model.model_fields)
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _fields(kind, (*section, name))
