"""Models of what a file may set, and the line that refuses each wrong value: file, field, value and remedy."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ckptbench.common.errors import ConfigError
from ckptbench.config.reading import (
    ConfigFiles,
    FieldError,
    Location,
    dotted,
    shortened,
)
from ckptbench.config.removed import LAST_WITH, REMOVED, words_of
from ckptbench.matrix.shown import number_hint

Model = TypeVar("Model", bound="Section")

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_WORDS = {
    **dict.fromkeys(
        ("model_type", "dataclass_type", "dict_type"), "use a mapping of fields (config/README.md lists them), or remove the key"
    ),
    "list_type": "use a list, each entry a mapping of fields",
    "too_short": "give at least one value",
    "bool_type": "use true or false",
    "missing": "it is missing: add this field",
    "invalid_key": "it is not a field name: YAML reads yes, no, on, off and numbers as values",
}  # fmt: skip
"""What is allowed, by the type of pydantic's error, where its own message uses words of Python."""


class Section(BaseModel):
    """A mapping of fields. Unknown keys are errors, so that a typing error is not a default."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
    )
    page: ClassVar[str] = "config/README.md"
    """That explains the fields."""


def json_schema(model: type) -> dict[str, Any]:
    """The JSON schema of a model, whose fields are described by the docstrings below them.

    Pydantic's `use_attribute_docstrings` would parse the source of every class in every process: a tenth of the time of a command.
    """
    for section in _all_of(Section):
        _describe(section)
    return TypeAdapter(model).json_schema()


def _all_of(section: type[Section]) -> Iterator[type[Section]]:
    """The classes that are derived from it, in the order in which they were made."""
    for each in section.__subclasses__():
        yield each
        yield from _all_of(each)


@functools.cache
def _describe(section: type[Section]) -> None:
    try:
        source = inspect.getsource(section)
    except OSError:  # it was made by `create_model`
        return
    definition = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(definition, ast.ClassDef)
    for field, text in itertools.pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            described = section.model_fields[ast.unparse(field.target)]
            described.description = inspect.cleandoc(ast.literal_eval(text.value))
    section.model_rebuild(force=True)


def checked(model: type[Model], sources: ConfigFiles) -> Model:
    """The content of the files as this model. Raises ConfigError with one line for each wrong value."""
    try:
        return model.model_validate(dict(sources.content))
    except ValidationError as error:
        lines = [_line(entry, model, sources) for entry in error.errors(include_url=False)]
        raise ConfigError(shortened(lines)) from None


def _line(entry: Any, model: type[Section], sources: ConfigFiles) -> str:
    kind, value = entry["type"], entry["input"]
    location = tuple(part for part in entry["loc"] if part != "[key]")
    if kind == "missing":
        return sources.explain(FieldError(location, _WORDS[kind]))
    if kind in _UNKNOWN:
        remedy = f"there is no such field{_suggestion(location, model) or ';'} {model.page} lists them all"
    else:
        words = entry["msg"].removeprefix("Value error, ")
        remedy = _WORDS.get(kind, re.sub("^(Input|String) should", "it should", words))
    remedy = _of_removed(location, value, is_unknown=kind in _UNKNOWN) or remedy
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        remedy += number_hint(value)
        if len(location) > 1:
            remedy += "; --config reads values in brackets as text: set them in a file"
    return sources.explain(FieldError(location, remedy, value))


def _of_removed(location: Location, value: object, *, is_unknown: bool) -> str:
    """What to use in place of a field, name or option that the last version had; "" for any other."""
    names = [part for part in location if isinstance(part, str)]
    asked = [names.pop()] if is_unknown else words_of(value)
    removed = REMOVED.get(names[-1] if names else "", {})
    remedies = (
        f"{name} was removed after version {LAST_WITH}: {removed[name]}"
        for name in asked
        if name in removed
    )
    return next(remedies, "")


def _suggestion(location: Location, model: type[BaseModel]) -> str:
    """The field that was perhaps meant: the same name elsewhere, or one with a similar name in the same section."""
    fields = dict(_fields(model, ()))
    section = tuple(part for part in location[:-1] if isinstance(part, str))
    similar = difflib.get_close_matches(str(location[-1]), fields.get(section, []), 1)
    elsewhere = [
        dotted((*other, location[-1])) for other in fields if location[-1] in fields[other]
    ]
    found = [*elsewhere, *similar][:1]
    return f"; did you mean {found[0]}?" if found else ""


def _fields(kind: Any, section: Location) -> Iterator[tuple[Location, list[str]]]:
    """The names of the fields of each section, by the section's place."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        yield section, [field.name for field in dataclasses.fields(kind)]
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield section, list(kind.model_fields)
        for name, field in kind.model_fields.items():
            for inner in (field.annotation, *get_args(field.annotation)):
                yield from _fields(inner, (*section, name))
