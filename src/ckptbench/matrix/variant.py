"""The choice of a strategy, a recovery or a trace of failures: its registered name and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol, Self

from ckptbench.errors import ConfigError
from ckptbench.matrix.shown import number_hint, show

Option = int | float | str | bool
Choices = Mapping[str, tuple[str, ...]]
"""The values that a text option may have, by its name. A text option without an entry takes any text."""
NO_CHOICES: Choices = {}
LARGEST_OPTION = 10**9
"""Of options that are numbers, which begin at 0. The names of cells, and so of folders, have them in full."""
NAME = r"[A-Za-z0-9_.-]+"
"""What the name of a cell, and of everything that it is made of, consists of. The wildcards of the workflow take no other."""


class HasOptions(Protocol):
    """An entry of a registry whose members take options."""

    @property
    def options(self) -> Mapping[str, Option]:
        """The default of each option, by its name."""

    @property
    def choices(self) -> Choices:
        """The allowed values of text options, by the option's name."""


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A registered name, and those options that differ from their defaults, sorted by name."""

    name: str
    options: tuple[tuple[str, Option], ...] = ()

    @classmethod
    def of(
        cls,
        kind: str,
        name: str,
        given: Mapping[str, Option],
        defaults: Mapping[str, Option],
        choices: Choices = NO_CHOICES,
    ) -> Self:
        """Check the options and drop those that equal their defaults.

        `kind`, such as "strategy", is used in errors. An option whose default is a float takes whole numbers too. Raises
        ConfigError if an option is unknown, has the wrong type, is none of its choices, is a number below 0 (a float: not
        above 0) or above LARGEST_OPTION, or a text that no name can hold.
        """
        for option, value in given.items():
            if option not in defaults:
                allowed = f"use {', '.join(defaults)}" if defaults else "it takes none"
                raise ConfigError(f"{kind} {name} has no option {show(option)}: {allowed}")
            if words := _refusal(value, defaults[option], choices.get(option)):
                raise ConfigError(f"{kind} {name}: {option} is {show(value)}, use {words}")
        typed = {
            name: float(value) if type(defaults[name]) is float else value
            for name, value in given.items()
        }
        different = {name: value for name, value in typed.items() if value != defaults[name]}
        return cls(name, tuple(sorted(different.items())))

    def __str__(self) -> str:
        """The form used in ids and tables: `deepfreeze_levels_memory`."""
        return "_".join(
            [self.name, *(f"{option}_{written(value)}" for option, value in self.options)]
        )

    @classmethod
    def read(cls, text: str, name: str, defaults: Mapping[str, Option]) -> Self:
        """The inverse of `str`, where the name that the text begins with is known and these are all its options.

        Raises ValueError where no variant is written so.
        """
        each = "".join(
            f"(?:_{re.escape(option)}_(?P<{option}>{_PATTERNS[type(defaults[option])]}))?"
            for option in sorted(defaults)
        )
        found = re.fullmatch(re.escape(name) + each, text)
        given = {} if found is None else found.groupdict()
        variant = cls(
            name,
            tuple(
                (option, _value(value, defaults[option]))
                for option, value in given.items()
                if value is not None
            ),
        )
        # A number that is written otherwise, such as 05, is in no name.
        if found is None or str(variant) != text:
            raise ValueError(f"{text}: not {name} with options of {', '.join(sorted(defaults))}")
        return variant

    def chosen(self, defaults: Mapping[str, Option]) -> dict[str, Option]:
        """The values of all options, defaults included."""
        return {**defaults, **dict(self.options)}

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


_PATTERNS = {bool: "True|False", int: "[0-9]+", float: r"[0-9]+(?:\.[0-9]+)?", str: ".+?"}
"""How the values of an option are written, by the type of its default."""


def written(value: Option) -> str:
    """A value as names have it: `30`, `0.7`, `0.00001`, `True`. Two values of an option are never written alike.

    A float is written with all of its digits, and without an exponent.
    """
    if isinstance(value, float):
        return f"{Decimal(float.__repr__(value)):f}".removesuffix(".0")
    return str(value)


def _value(text: str, default: Option) -> Option:
    """The inverse of `written`, of an option with this default."""
    return text == str(True) if type(default) is bool else type(default)(text)


def _refusal(value: object, default: Option, choices: tuple[str, ...] | None) -> str | None:
    """What an option may be, where `value` is something else; None: it may be `value`."""
    # `bool` is a subclass of `int`, hence the exact types.
    fits = type(value) is type(default)
    if choices is not None:
        return None if fits and value in choices else " or ".join(choices)
    if type(default) is float:
        fits = type(value) in (int, float) and 0 < value <= LARGEST_OPTION  # type: ignore[operator]
        return None if fits else f"a number above 0, up to {LARGEST_OPTION}{number_hint(value)}"
    if type(default) is int:
        fits = type(value) is int and 0 <= value <= LARGEST_OPTION
        return None if fits else f"a whole number from 0 to {LARGEST_OPTION}{number_hint(value)}"
    if type(default) is bool:
        return None if fits else "true or false"
    fits = fits and bool(value == "" or re.fullmatch(NAME, str(value)))
    return None if fits else "a text of letters (a-z, A-Z), digits, _, . and -"
