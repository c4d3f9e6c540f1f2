"""The types of values that fields of the config take."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import CoreSchema, core_schema

from ckptbench.common.errors import ConfigError
from ckptbench.common.objects import fault_of
from ckptbench.matrix.plugin_spec import LARGEST_OPTION, Entry, Option, PluginSpec

T = TypeVar("T")

LARGEST_NUMBER = 10**6
LARGEST_INTERVAL = 10**9 - 1
NAME_BYTES = 255
"""The longest name of a file or folder. Linux has no longer one."""
UNSEEN = ("Cc", "Cs", "Co", "Cn")
"""Unicode's categories of characters that have no look: controls, halves of characters, private and unassigned ones."""


def number(
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
) -> Any:
    """Annotation of a number within these bounds. Neither a boolean nor a text in quotes is one, and it is finite."""
    return Field(strict=True, allow_inf_nan=False, ge=minimum, gt=above, le=maximum, lt=below)


def whole(minimum: int, maximum: int = LARGEST_NUMBER) -> Any:
    """Annotation of a whole number from `minimum` to `maximum`."""
    return Field(strict=True, ge=minimum, le=maximum)


@dataclass(frozen=True)
class OneOf:
    """Annotation of a string that must be one of these names. The schema lists them."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True, eq=False)
class SpecOf:
    """Annotation of a registered name, or of `{name: options}`. `kind`, such as "strategy", is used in errors."""

    kind: str
    registry: Mapping[str, Entry]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._spec,
            serialization=core_schema.plain_serializer_function_ser_schema(PluginSpec.to_json),
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        with_options = {
            name: _mapping({option: _option(each) for option, each in entry.options.items()})
            for name, entry in self.registry.items()
        }
        mapping = _mapping(with_options) | {"minProperties": 1, "maxProperties": 1}
        return {"anyOf": [{"enum": list(self.registry), "type": "string"}, mapping]}

    def _spec(self, value: object) -> PluginSpec:
        named = {value: {}} if isinstance(value, str) else value
        ((name, options), *others) = (
            named.items() if isinstance(named, dict) and named else [("", {})]
        )
        if others or name not in self.registry or not isinstance(options, dict):
            raise ValueError(
                f"use {', '.join(self.registry)}, or one of them with its options as in {{name: {{option: value}}}}"
            )
        try:
            return PluginSpec.of(self.kind, name, options, self.registry[name])
        except ConfigError as error:
            raise ValueError(str(error)) from error


def _mapping(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _option(default: Option | tuple[str, ...]) -> dict[str, Any]:
    """The schema of an option."""
    match default:
        case tuple():
            return {"enum": list(default), "type": "string"}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"minimum": 0, "maximum": LARGEST_OPTION, "type": "integer"}
        case float():
            return {"exclusiveMinimum": 0, "maximum": LARGEST_OPTION, "type": "number"}
    return {"type": "string"}


class OneOrMore:
    """Annotation of a list: a single value counts as a list of one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _interval(value: object) -> str:
    """An interval as the config writes it, in the words that `Interval` reads."""
    if value == "never":
        return "never"
    if type(value) is int and 1 <= value <= LARGEST_INTERVAL:
        return f"e{value}"
    if isinstance(value, str) and (found := re.fullmatch("([1-9][0-9]{0,8}) steps?", value)):
        return f"s{found[1]}"
    raise ValueError(
        'use "never", a whole number of epochs from 1, or steps as in "50 steps"; below 10⁹'
    )


def one_line(value: object) -> str:
    """The text with single blanks for all white space. Raises ValueError with the remedy."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("use a text")
    text = " ".join(value.split())
    if unseen := unseen_in(text):
        raise ValueError(f"no reader can see the character U+{ord(unseen):04X} in it: remove it")
    return text


def unseen_in(text: str) -> str:
    """The first character that has no look of its own; "" if there is none. Joiners of emoji and scripts are fine."""
    return next((each for each in text if unicodedata.category(each) in UNSEEN), "")


def _path(path: str) -> str:
    if found := re.search("[\\0\ud800-\udfff]", path):  # and halves of characters
        raise ValueError(f"no path can hold the character U+{ord(found[0]):04X}: remove it")
    return os.path.expanduser(path)


def _folder_or_url(path: str) -> str:
    if fault := fault_of(path):
        raise ValueError(fault)
    return path


def _whole_path(path: str) -> str:
    if not os.path.isabs(path):
        raise ValueError("write the whole path of a folder that every node has, as in /dev/shm/me")
    return path


Sweep = Annotated[list[T], Field(min_length=1), OneOrMore()]
Count = Annotated[int, whole(1)]
CountFromZero = Annotated[int, whole(0)]
Flag = Annotated[bool, Field(strict=True)]
FilePath = Annotated[str, Field(min_length=1), AfterValidator(_path)]
"""A path, which may begin with `~`."""
PathOrNull = FilePath | None
FolderOrUrl = Annotated[FilePath, AfterValidator(_folder_or_url)]
"""A folder, or `s3://BUCKET/PREFIX`."""
WholePath = Annotated[FilePath, AfterValidator(_whole_path)]
"""The path of a folder on every node, which is not below the folder of the study."""
IntervalText = Annotated[
    str,
    BeforeValidator(
        _interval,
        json_schema_input_type=Literal["never"] | Annotated[int, whole(1, LARGEST_INTERVAL)] | str,
    ),
]
# NumPy's old generator, which Chainer draws from, takes 32 bits; repeats and ranks are added to the seed.
Seed = Annotated[int, whole(0, 2**31 - 1)]
Text = Annotated[str, BeforeValidator(one_line)]
"""Text that readers see: titles and names."""
