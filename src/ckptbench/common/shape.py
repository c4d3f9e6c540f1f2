"""The shape of what was read as JSON: every value has the type that a hint names, before anything is done with it.

A hint is written as in annotations: a `TypedDict` or a dataclass for an object with these fields (it may have more), `dict[str, T]` for one with
any names, `list[T]`, `T | None`, plain types, `Any`. Of a `Literal` the types of its words count, not the words.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as is_object

NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
UNIONS = (Union, types.UnionType)
SHOWN = 40
"""Characters of a wrong value that a message shows."""


class WrongShape(ValueError):  # noqa: N818 (no user reads it: its caller names the file)
    """A value has another type than it must have. The message names its place and what it is."""


def check(value: object, hint: Any, at: str = "") -> None:
    """Raises WrongShape where `value` has another type than `hint`. The message names the place: `files.model.bytes`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        check(value, arguments[0], at)
    elif origin in UNIONS:
        _check_any(value, arguments, at)
    elif origin is Literal:
        _check_any(value, tuple({type(word) for word in arguments}), at)
    elif origin is dict:
        for name, inner in _object(value, at).items():
            check(inner, arguments[1], _inside(at, name))
    elif origin is list:
        _check_list(value, arguments[0], at)
    elif is_object(hint) or dataclasses.is_dataclass(hint):
        _check_fields(_object(value, at), hint, at)
    elif hint is dict:
        _object(value, at)
    elif not _is(value, hint):
        raise _wrong(value, NAMES.get(hint, getattr(hint, "__name__", "null")), at)


def _is(value: object, kind: Any) -> bool:
    """Whether it is a value of this plain type. JSON writes 1.0 as it likes, so a whole number is a number, too."""
    if kind is Any:
        return True
    if kind in (None, types.NoneType):
        return value is None
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _check_any(value: object, hints: tuple[Any, ...], at: str) -> None:
    errors = []
    for hint in hints:
        try:
            check(value, hint, at)
        except WrongShape as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def _check_list(value: object, hint: Any, at: str) -> None:
    if not isinstance(value, list):
        raise _wrong(value, "a list", at)
    if hint in (int, float, str) and {*map(type, value)} <= (
        {int, float} if hint is float else {hint}
    ):
        return  # at once: the steps of a trace are many
    for number, inner in enumerate(value):
        check(inner, hint, f"{at}[{number}]")


def _check_fields(value: Mapping[str, object], hint: Any, at: str) -> None:
    for name, (inner, is_needed) in _fields(hint).items():
        if name in value:
            if type(value[name]) is not inner:  # most are of a plain type
                check(value[name], inner, _inside(at, name))
        elif is_needed:
            raise WrongShape(f"{_inside(at, name)} is missing")


@functools.cache
def _fields(hint: Any) -> dict[str, tuple[Any, bool]]:
    """The hint of each field, and whether it must be there."""
    hints = get_type_hints(hint)
    if is_object(hint):
        return {name: (inner, name in hint.__required_keys__) for name, inner in hints.items()}
    needed = {
        field.name
        for field in dataclasses.fields(hint)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    return {
        name: (inner, name in needed)
        for name, inner in hints.items()
        if get_origin(inner) is not ClassVar and inner is not ClassVar
    }


def _object(value: object, at: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(value, "an object", at) if at else WrongShape("holds no JSON object")
    return value


def _inside(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _wrong(value: object, what: str, at: str) -> WrongShape:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    return WrongShape(f"{at or 'it'} is {shown}, not {what}")
