"""The config files as they are written: which of them sets a value, and faults that the merged config no longer shows.

`python -m ckptbench.config.reading FILE...` says in one line each what is wrong with files that Snakemake cannot read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml

from ckptbench.common.errors import ConfigError, all_of
from ckptbench.common.files import read_regular
from ckptbench.common.remedies import blame
from ckptbench.matrix.shown import show

Location = tuple[Any, ...]
"""The keys and indices that lead to a value."""
COMMAND_LINE = "--config"
MISSING = object()
MOST_LINES = 20
"""Wrong values that get a line of their own."""
MOST_VALUES = 100_000
"""Values of a file, where each alias counts as all that it stands for."""
DEEPEST = 100
"""Levels of nesting."""
TOO_DEEP = "a value holds itself or is nested too deeply: write the values instead of the alias"
UNFIT = re.compile("[\\0\ud800-\udfff]")
"""Characters that the system takes in no name of a file and no argument of a program: NUL, and halves of characters."""
PLAIN_NUMBER = re.compile(
    r"[-+]?(0|[1-9]\d*(_\d+)*|0x[0-9a-fA-F]+|(\d+(_\d+)*)?\.(\d+(_\d+)*)?([eE][-+]\d+)?|\.(inf|Inf|INF|nan|NaN|NAN))"
)
"""A number that YAML 1.1, which Snakemake reads, and a reader take for the same."""


class FieldError(ConfigError):
    """A wrong value of a field: where it is, and the remedy."""

    def __init__(self, location: Location, remedy: str, value: object = MISSING) -> None:
        self.location, self.remedy, self.value = location, remedy, value
        super().__init__(self.line())

    def line(self, value: object = MISSING) -> str:
        """Field, value and remedy. `value` is what the config says, where it is not that of the error itself."""
        value = self.value if value is MISSING else value
        shown = "" if value is MISSING else f" is {show(value)}"
        return f"{dotted(self.location)}{shown}: {self.remedy}"


def shortened(lines: Sequence[str]) -> str:
    """The lines, each once. After MOST_LINES the rest is counted."""
    each = list(dict.fromkeys(lines))
    if len(each) > MOST_LINES:
        each[MOST_LINES:] = [f"and {len(each) - MOST_LINES} more wrong values"]
    return "\n".join(each)


def dotted(location: Location) -> str:
    """The location in one line, as in `exclude[0].ranks`."""
    parts = [
        f"[{part}]"
        if isinstance(part, int) and not isinstance(part, bool)
        else f".{part if isinstance(part, str) and part.isidentifier() else show(part)}"
        for part in location
    ]
    return "".join(parts).removeprefix(".") or "the config"


def value_at(content: object, location: Location) -> object:
    """The value at a location; MISSING if there is none. A single value counts as a list of one."""
    for part in location:
        is_single = part == 0 and not isinstance(content, list)
        try:
            content = content if is_single else content[part]  # type: ignore[index]
        except (LookupError, TypeError):
            return MISSING
    return content


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file, as Snakemake reads it: JSON if it is that, otherwise YAML."""

    path: Path
    content: Any

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises ConfigError if the file cannot be read, is not a mapping in YAML or JSON, or sets a key twice."""
        try:
            content = _parse(read_regular(path).decode("utf-8"))
            _check_values(content)
        except OSError as error:
            other = "correct the path, or the file that names it"
            reason = f"cannot be read: {blame(error, path, other, reading=True)}"
        except UnicodeDecodeError as error:
            reason = f"cannot be read as text in UTF-8: {error}; save it in UTF-8"
        except ConfigError as error:
            reason = str(error)
        except yaml.MarkedYAMLError as error:
            reason = _fault(error)
        except RecursionError:
            reason = TOO_DEEP
        except (yaml.YAMLError, ValueError) as error:
            reason = f"cannot be read as YAML: {' '.join(str(error).split())}; correct it"
        else:
            if isinstance(content, Mapping):
                return cls(path, content)
            reason = "the file is empty or no mapping: give it fields, as config/config.yaml has"
        raise ConfigError(f"{path}: {reason}")


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except ValueError:
        return yaml.load(text, _Loader)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ConfigError(f"{name} is set twice in one mapping: keep one of the two")
        content[name] = value
    return content


def _check_values(content: object) -> None:
    """Raises ConfigError for more values or levels than a config needs, and for a text that no path or command can hold."""
    left: list[tuple[Location, object]] = [((), content)]
    count = 1
    while left:
        location, value = left.pop()
        for text in (value, *location[-1:]):
            if isinstance(text, str) and (found := UNFIT.search(text)):
                raise FieldError(
                    location,
                    f"no path, command or variable can hold the character U+{ord(found[0]):04X}: remove it",
                    value,
                )
        inner: list[tuple[Any, object]] = []
        if isinstance(value, Mapping):
            inner = list(value.items())
        elif isinstance(value, list | tuple | set):
            inner = list(enumerate(value))
        count += len(inner)
        if count > MOST_VALUES:
            raise ConfigError(
                f"more than {MOST_VALUES:,} values, each alias counted as all that it stands for: write fewer"
            )
        if len(location) > DEEPEST:
            raise ConfigError(TOO_DEEP)
        left.extend(((*location, key), each) for key, each in inner)


class _Loader(yaml.FullLoader):
    """That of Snakemake, which refuses a key that is set twice, and numbers of YAML 1.1 that readers take for others.

    What a merge (`<<`) brings may be set again.
    """

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        is_number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if is_number and node.style is None and not PLAIN_NUMBER.fullmatch(node.value):
            value = show(self.construct_object(node))
            raise ConfigError(
                f"line {node.start_mark.line + 1}: YAML 1.1 reads {node.value} as {value}: write the number in decimal digits, or a text in quotes"
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if first := lines.get((key.tag, key.value)):
                raise ConfigError(
                    f"line {line}: {key.value} is set twice, first in line {first}: keep one of the two"
                )
            lines[key.tag, key.value] = line
        return node


def _fault(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    words = ", ".join(words for words in (error.context, error.problem) if words)
    return f"{where}not YAML: {words}; correct the line, or one before it"


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The merged content of a config, and the files that it comes from. Later files override earlier ones."""

    content: Mapping[str, Any]
    files: Sequence[ConfigFile] = ()

    @classmethod
    def read(
        cls,
        content: Mapping[str, Any],
        paths: Sequence[Path],
        command_line: Mapping[str, Any] | None = None,
    ) -> Self:
        """`command_line` is what --config sets, over all files. Raises ConfigError if a file is not as it must be."""
        files = all_of(partial(ConfigFile.read, path) for path in paths)
        if command_line:
            files.append(ConfigFile(Path(COMMAND_LINE), command_line))
        sources = cls(content, files)
        try:
            _check_values(content)  # what the command line has set, or a template
        except ConfigError as error:
            raise ConfigError(sources.explain(error)) from None
        return sources

    def refuse_ignored(self, is_allowed: Callable[[Location], bool]) -> None:
        """Raises ConfigError for an empty mapping where it is not allowed: merged over a value, it leaves the value as it was."""
        for file in self.files if len(self.files) > 1 else ():
            for location in _empty_mappings(file.content):
                if not is_allowed(location):
                    raise ConfigError(
                        f"{file.path}: {dotted(location)} is {{}}: an empty mapping changes nothing here: give a value, or remove the key"
                    )

    @property
    def names(self) -> str:
        """All files, for a fault that may come from any of them."""
        return " and ".join(str(file.path) for file in self.files) or "config"

    def refuse(self, faults: Iterable[ConfigError]) -> None:
        """Raises ConfigError for the first of these, if there are any."""
        for fault in faults:
            raise ConfigError(self.explain(fault)) from None

    def explain(self, error: ConfigError) -> str:
        """The error with the file that it is about."""
        if isinstance(error, FieldError):
            value = value_at(self.content, error.location)
            if value is not MISSING:  # otherwise it is a default, or not in the content's own words
                return f"{self.file_of(error.location)}: {error.line(value)}"
        return f"{self.names}: {error}"

    def file_of(self, location: Location) -> str:
        """The file that sets the value at a location: the last one that does, else the command line."""
        value = value_at(self.content, location)
        for file in reversed(self.files):
            found = value_at(file.content, location)
            if _alike(found, value) or (isinstance(found, Mapping) and isinstance(value, Mapping)):
                return str(file.path)
            if found is not MISSING:
                break  # the command line has replaced it
        return COMMAND_LINE if self.files else "config"


def _empty_mappings(content: object, location: Location = ()) -> Iterator[Location]:
    """Where they are. A list replaces another one as a whole, so nothing in it is merged."""
    if isinstance(content, Mapping):
        if not content:
            yield location
        for key, value in content.items():
            yield from _empty_mappings(value, (*location, key))


def _alike(one: object, other: object) -> bool:
    """Whether both are the same value of the same type. nan is like itself."""
    return type(one) is type(other) and repr(one) == repr(other)


def main() -> int:
    """Check the files named on the command line."""
    faults = 0
    for name in sys.argv[1:]:
        try:
            ConfigFile.read(Path(name))
        except ConfigError as error:
            print(error)
            faults += 1
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
