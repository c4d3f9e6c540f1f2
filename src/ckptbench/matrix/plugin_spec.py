"""The choice of a strategy, a recovery or a trace of failures: its registered name and its options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Self

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.shown import number_hint, show

Option = int | float | str | bool
Options = Mapping[str, Option | tuple[str, ...]]
"""Default of each option, by its name. One that takes certain texts has all of them, with the default first."""
LARGEST_OPTION = 10**9
"""Of options that are numbers, which begin at 0. The names of cells, and so of folders, have them in full."""
NAME = r"[A-Za-z0-9_.-]+"
"""What the name of a cell, and of everything that it is made of, consists of. The wildcards of the workflow take no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a registry whose members take options."""

    options: Options = field(default_factory=dict)
    frameworks: tuple[str, ...] | None = None
    """The frameworks that it serves. None: all."""

    def serves(self, framework: str) -> bool:
        return self.frameworks is None or framework in self.frameworks


def natural(label: str) -> list[float | str]:
    """Sorts numbers in a name by their size: `mean_s=60` before `mean_s=240`."""
    parts = re.split(r"(\d+\.?\d*)", label)
    return [float(part) if place % 2 else part for place, part in enumerate(parts)]


@dataclass(frozen=True, slots=True, order=True)
class PluginSpec:
    """A registered name, and those options that differ from their defaults, sorted by name."""

    name: str
    options: tuple[tuple[str, Option], ...] = ()

    @classmethod
    def of(cls, kind: str, name: str, given: Mapping[str, Option], entry: Entry) -> Self:
        """Check the options and drop those that equal their defaults.

        `kind`, such as "strategy", is used in errors. An option whose default is a float takes whole numbers too. Raises
        ConfigError if an option is unknown, has the wrong type, is none of its choices, is a number below 0 (a float: not
        above 0) or above LARGEST_OPTION, or a text that no name can hold.
        """
        for option, value in given.items():
            if option not in entry.options:
                allowed = f"use {', '.join(entry.options)}" if entry.options else "it takes none"
                raise ConfigError(f"{kind} {name} has no option {show(option)}: {allowed}")
            if words := _refusal(value, entry.options[option]):
                raise ConfigError(f"{kind} {name}: {option} is {show(value)}, use {words}")
        defaults = defaults_of(entry.options)
        different = {name: value for name, value in given.items() if value != defaults[name]}
        return cls(name, tuple(sorted(different.items())))

    def __str__(self) -> str:
        """The form used in ids: `deepfreeze_memory_1`."""
        return "_".join(
            [self.name, *(f"{option}_{written(value)}" for option, value in self.options)]
        )

    @property
    def label(self) -> str:
        """The form used in tables: `deepfreeze memory=1`."""
        return " ".join(
            [self.name, *(f"{option}={written(value)}" for option, value in self.options)]
        )

    def columns(self, kind: str) -> dict[str, str]:
        """The columns of tables that hold it: `kind`, its label, `kind_name`, and `kind_options`, a JSON object."""
        options = json.dumps(dict(self.options))
        return {kind: self.label, f"{kind}_name": self.name, f"{kind}_options": options}

    def chosen(self, options: Options) -> dict[str, Option]:
        """The values of all options of the entry, defaults included."""
        return {**defaults_of(options), **dict(self.options)}

    def to_json(self) -> str | dict[str, dict[str, Option]]:
        """The name if no option differs from its default, otherwise `{name: options}`."""
        return {self.name: dict(self.options)} if self.options else self.name

    @classmethod
    def from_json(cls, content: str | Mapping[str, Mapping[str, Option]]) -> Self:
        """The inverse of `to_json`."""
        if isinstance(content, str):
            return cls(content)
        ((name, options),) = content.items()
        return cls(name, tuple(sorted(options.items())))


def defaults_of(options: Options) -> dict[str, Option]:
    """The default of each option of an entry."""
    return {name: each[0] if isinstance(each, tuple) else each for name, each in options.items()}


def written(value: Option) -> str:
    """A value as names have it: `30`, `0.7`, `0.00001`, `True`. A float has all of its digits, and no exponent."""
    if isinstance(value, float):
        return f"{Decimal(float.__repr__(value)):f}".removesuffix(".0")
    return str(value)


def _refusal(value: object, default: Option | tuple[str, ...]) -> str | None:
    """What an option may be, where `value` is something else; None: it may be `value`."""
    # `bool` is a subclass of `int`, hence the exact types.
    match default:
        case tuple():
            return None if value in default else " or ".join(default)
        case bool():
            return None if type(value) is bool else "true or false"
        case float():
            fits = type(value) in (int, float) and 0 < value <= LARGEST_OPTION  # type: ignore[operator]
            words = f"a number above 0, up to {LARGEST_OPTION}{number_hint(value)}"
        case int():
            fits = type(value) is int and 0 <= value <= LARGEST_OPTION
            words = f"a whole number from 0 to {LARGEST_OPTION}{number_hint(value)}"
        case _:
            fits = type(value) is str and re.fullmatch(f"({NAME})?", value) is not None
            words = "a text of letters (a-z, A-Z), digits, _, . and -"
    return None if fits else words
