"""The choice of a strategy or a recovery: its registered name and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ckptbench.errors import ConfigError

Option = int | str | bool


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A registered name, and those options that differ from their defaults, sorted by name."""

    name: str
    options: tuple[tuple[str, Option], ...] = ()

    @classmethod
    def of(
        cls, kind: str, name: str, given: Mapping[str, Option], defaults: Mapping[str, Option]
    ) -> Self:
        """Check the options and drop those that equal their defaults.

        `kind`, such as "strategy", is used in errors. Raises ConfigError if an option is unknown or has the wrong type.
        """
        for option, value in given.items():
            if option not in defaults:
                allowed = ", ".join(defaults) or "it takes none"
                raise ConfigError(f"{kind} {name} has no option {option!r}: {allowed}")
            if type(value) is not type(defaults[option]):
                raise ConfigError(
                    f"{kind} {name}: {option} is {value!r}, use a value like {defaults[option]!r}"
                )
        different = {name: value for name, value in given.items() if value != defaults[name]}
        return cls(name, tuple(sorted(different.items())))

    def __str__(self) -> str:
        """The form used in ids and tables: `deepfreeze_levels_memory`."""
        return "_".join([self.name, *(f"{option}_{value}" for option, value in self.options)])

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
