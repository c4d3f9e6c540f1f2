"""The values that fields of the config take, each with the words that say what is allowed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ckptbench.errors import ConfigError
from ckptbench.matrix.variant import LARGEST_OPTION, HasOptions, Option, Variant

T = TypeVar("T")

_JSON_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}

NUMBER = "number"
"""Type of the error of a field that wants a number."""
LARGEST_NUMBER = 10**6
LARGEST_INTERVAL = 10**9
NAME_BYTES = 255
"""The longest name of a file or folder. Linux has no longer one."""
PATH_BYTES = 3000
"""The longest path of a setting. Linux allows 4,096 bytes, of which a run's own files need some."""


@dataclass(frozen=True)
class OneOf:
    """Annotation of a string that must be one of these names. The schema lists them."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True, eq=False)
class VariantOf:
    """Annotation of a registered name, or of `{name: options}`. `kind`, such as "strategy", is used in errors."""

    kind: str
    registry: Mapping[str, HasOptions]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._variant,
            serialization=core_schema.plain_serializer_function_ser_schema(Variant.to_json),
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        with_options = {
            name: {
                "type": "object",
                "properties": {
                    option: _option_schema(default, entry.choices.get(option))
                    for option, default in entry.options.items()
                },
                "additionalProperties": False,
            }
            for name, entry in self.registry.items()
        }
        mapping = {
            "type": "object",
            "properties": with_options,
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        return {"anyOf": [{"enum": list(self.registry), "type": "string"}, mapping]}

    def _variant(self, value: object) -> Variant:
        named = {value: {}} if isinstance(value, str) else value
        if not isinstance(named, dict) or len(named) != 1:
            raise ValueError(self._words())
        ((name, options),) = named.items()
        if name not in self.registry or not isinstance(options, dict):
            raise ValueError(self._words())
        try:
            entry = self.registry[name]
            return Variant.of(self.kind, name, options, entry.options, entry.choices)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    def _words(self) -> str:
        return f"use {', '.join(self.registry)}, or one of them with its options as in {{name: {{option: value}}}}"


def _option_schema(default: Option, choices: tuple[str, ...] | None) -> dict[str, Any]:
    kind = {"type": _JSON_TYPES[type(default)]}
    if type(default) is float:
        return {"exclusiveMinimum": 0, "maximum": LARGEST_OPTION, **kind}
    if type(default) is int:
        return {"minimum": 0, "maximum": LARGEST_OPTION, **kind}
    return kind if choices is None else {"enum": list(choices), **kind}


class OneOrMore:
    """Annotation of a list: a single value counts as a list of one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, kw_only=True)
class Number:
    """Annotation of a number. Neither a boolean nor a text in quotes is one, and it is finite."""

    minimum: int | None = None
    above: int | None = None
    maximum: int | None = None
    below: int | None = None
    whole: bool = False
    or_null: bool = False

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        bounds = {
            "minimum": self.minimum,
            "exclusiveMinimum": self.above,
            "maximum": self.maximum,
            "exclusiveMaximum": self.below,
        }
        kind = {"type": "integer" if self.whole else "number"}
        own = {name: bound for name, bound in bounds.items() if bound is not None} | kind
        return {"anyOf": [own, {"type": "null"}]} if self.or_null else own

    def _check(self, value: Any) -> int | float | None:
        if value is None and self.or_null:
            return None
        # `bool` is a subclass of `int`, hence the exact types. Comparisons with nan are false.
        if type(value) not in ((int,) if self.whole else (int, float)) or not self._within(value):
            raise PydanticCustomError(NUMBER, self._words())
        return int(value) if self.whole else float(value)

    def _within(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )

    def _words(self) -> str:
        words = "use a whole number" if self.whole else "use a number"
        if self.above is not None:
            words += f" above {self.above}, up to {self.maximum}"
        else:
            words += f" from {self.minimum}"
            words += f" to {self.maximum}" if self.maximum is not None else ""
            words += f", below {self.below}" if self.below is not None else ""
        return f"{words}, or null" if self.or_null else words


def whole(minimum: int, maximum: int | None = None, *, or_null: bool = False) -> Number:
    """Annotation of a whole number from `minimum` to `maximum`; None: without an upper bound."""
    return Number(minimum=minimum, maximum=maximum, whole=True, or_null=or_null)


def path_of(value: object) -> str | None:
    """The path with `~` replaced by the home folder. Raises ValueError if no file can have this path."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ValueError('use a path, as in "/scratch/me", or null')
    if "\0" in value:
        raise ValueError("a path holds no NUL character: remove it")
    path = os.path.expanduser(value)
    if path.startswith("~"):
        raise ValueError("no user of this name has a home folder here: write the path in full")
    try:
        name_bytes = [len(name) for name in os.fsencode(path).split(b"/")]
    except UnicodeEncodeError:
        raise ValueError("no path can hold these characters: remove them") from None
    if max(name_bytes) > NAME_BYTES or sum(name_bytes) + len(name_bytes) > PATH_BYTES:
        raise ValueError(
            f"use a path of at most {PATH_BYTES} bytes, and {NAME_BYTES} for each name in it"
        )
    return path


INTERVAL_HELP = 'use "never", a whole number of epochs from 1, or steps as in "50 steps"'


def _interval(value: object) -> str:
    """An interval as the config writes it, in the words that `Interval` reads."""
    if value == "never":
        return "never"
    unit, number = "", 0
    if type(value) is int:
        unit, number = "e", value
    elif isinstance(value, str):
        digits, _, word = value.partition(" ")
        if word in ("step", "steps") and digits.isdecimal():
            # Without leading zeros: Python refuses to read a number of thousands of digits.
            digits = digits.lstrip("0")[: len(str(LARGEST_INTERVAL)) + 1]
            unit, number = "s", int(digits or 0)
    if not unit or number < 1:
        raise ValueError(INTERVAL_HELP)
    if number > LARGEST_INTERVAL:
        raise ValueError(f"use an interval of at most {LARGEST_INTERVAL} epochs or steps")
    return f"{unit}{number}"


Sweep = Annotated[list[T], Field(min_length=1), OneOrMore()]
Count = Annotated[int, whole(1, LARGEST_NUMBER)]
CountFromZero = Annotated[int, whole(0, LARGEST_NUMBER)]
Flag = Annotated[bool, Field(strict=True)]
PathOrNull = Annotated[
    str | None,
    BeforeValidator(path_of, json_schema_input_type=Annotated[str, Field(min_length=1)] | None),
]
IntervalText = Annotated[
    str,
    BeforeValidator(
        _interval,
        json_schema_input_type=Literal["never"] | Annotated[int, whole(1, LARGEST_INTERVAL)] | str,
    ),
]
# NumPy's old generator, which Chainer draws from, takes 32 bits; repeats and ranks are added to the seed.
Seed = Annotated[int, whole(0, 2**31 - 1)]
