"""Checks of values that were read from JSON against the types that they must have."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ckptbench.matrix.shown import show

LARGEST = 2**63 - 1
"""Of whole numbers: tables and arrays hold no larger ones."""
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}  # fmt: skip


def types_of(kind: type[Any]) -> dict[str, Any]:
    """The type of each field of a dataclass, by its name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def check_fields(fields: Mapping[str, Any], kinds: Mapping[str, Any], within: str = "") -> None:
    """Raises TypeError, with the field and what it must be, for the first value that has not the type of its field.

    Fields that are missing, or that have no type here, are not looked at. `within` is what the fields belong to.
    """
    for name, kind in kinds.items():
        if name in fields and not fits(fields[name], kind):
            raise TypeError(f"{within}{name} is {show(fields[name])}, not {in_words(kind)}")


def fits(value: Any, kind: Any) -> bool:
    """Whether the value is of this type. A whole number is a number too, and a boolean is none."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is list:
        return isinstance(value, list) and _all_fit(value, inner[0])
    if origin is dict:
        return isinstance(value, dict) and _all_fit([*value.values()], inner[1])
    if dataclasses.is_dataclass(kind):
        return isinstance(value, kind)  # type: ignore[arg-type]
    if kind in (int, float) and type(value) is int:
        return -LARGEST <= value <= LARGEST
    return type(value) is kind


def _all_fit(values: list[Any], kind: Any) -> bool:
    if kind not in (int, float):
        return all(fits(value, kind) for value in values)
    # Steps are millions: their types are few, and their bounds are found at once.
    if not set(map(type, values)) <= ({int} if kind is int else {int, float}):
        return False
    whole = values if kind is int else [value for value in values if type(value) is int]
    return not whole or (min(whole) >= -LARGEST and max(whole) <= LARGEST)


def in_words(kind: Any) -> str:
    """The type in plain words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(each) for each in inner)
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    if origin is list:
        return f"a list in which each is {in_words(inner[0])}"
    if origin is dict:
        return f"an object in which each is {in_words(inner[1])}"
    if dataclasses.is_dataclass(kind):
        return f"a {kind.__name__.lower()}"  # type: ignore[union-attr]
    return _WORDS.get(kind, "any value")
