"""Checks of a dataset's settings. The config's models check them too, but a script may be called without a config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from ckptbench.errors import DataError

S = TypeVar("S")


def parse_settings(kind: type[S], dataset: str, given: Mapping[str, Any]) -> S:
    """An instance of the dataclass `kind`, with its defaults for settings that are not given.

    Raises DataError if `kind` has no such setting, or if its own checks raise TypeError or ValueError.
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
