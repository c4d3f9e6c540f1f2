"""Settings of a dataset as they come from outside: the config's models check them, and so does this edge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from ckptbench.errors import DataError

S = TypeVar("S")


def parse_settings(kind: type[S], dataset: str, given: Mapping[str, Any]) -> S:
    """An instance of the dataclass `kind`; its defaults fill what is not given.

    Raises DataError for a name that it does not have, and for a TypeError or ValueError of its own checks.
    """
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in names:
            allowed = f"use {', '.join(names)}" if names else "it takes none"
            raise DataError(f"datasets.{dataset}: unknown setting {name!r}: {allowed}")
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise DataError(f"datasets.{dataset}: {error}") from error


def require_whole_number(name: str, value: object, *, minimum: int, maximum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise ValueError(f"{name} is {value!r}: use a whole number from {minimum} to {maximum}")
