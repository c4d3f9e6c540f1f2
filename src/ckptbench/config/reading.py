"""Files of settings, read as Snakemake reads them, and the words of their faults.

`python -m ckptbench.config.reading FILE...` says in one line each what is wrong with files that Snakemake cannot read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
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
MISSING = object()
MOST_LINES = 20
"""Wrong values that get a line of their own."""


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


def read_file(path: Path) -> Mapping[str, Any]:
    """The content of a file: JSON if it is that, otherwise YAML.

    Raises ConfigError if the file cannot be read, is not a mapping in YAML or JSON, or sets a key of YAML twice.
    """
    try:
        content = _parse(read_regular(path).decode("utf-8"))
    except OSError as error:
        other = "correct the path, or the file that names it"
        reason = f"cannot be read: {blame(error, path, other, reading=True)}"
    except UnicodeDecodeError as error:
        reason = f"cannot be read as text in UTF-8: {error}; save it in UTF-8"
    except ConfigError as error:
        reason = str(error)
    except yaml.MarkedYAMLError as error:
        reason = _fault(error)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = f"cannot be read as YAML: {' '.join(str(error).split())}; correct it"
    else:
        if isinstance(content, Mapping):
            return content
        reason = "the file is empty or no mapping: give it fields, as config/config.yaml has"
    raise ConfigError(f"{path}: {reason}")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return yaml.load(text, _Loader)


class _Loader(yaml.FullLoader):
    """Snakemake's, which refuses a key that is set twice. What a merge (`<<`) brings may be set again."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[str, Any] = {}
        for key, _ in node.value:
            mark = first.setdefault(str(key.value), key.start_mark)
            if mark is not key.start_mark:
                raise ConfigError(
                    f"line {key.start_mark.line + 1}: {key.value} is set twice, first in line {mark.line + 1}: keep one of the two"
                )
        return node


def _fault(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    words = ", ".join(words for words in (error.context, error.problem) if words)
    return f"{where}not YAML: {words}; correct the line, or one before it"


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The merged content of a config, and the files that it comes from."""

    content: Mapping[str, Any]
    paths: Sequence[Path] = ()

    @classmethod
    def read(cls, content: Mapping[str, Any], paths: Sequence[Path]) -> Self:
        """Raises ConfigError if one of the files is not as it must be."""
        all_of(partial(read_file, path) for path in paths)
        return cls(content, paths)

    @classmethod
    def of(cls, path: Path) -> Self:
        """Of one file. Raises ConfigError if it is not as it must be."""
        return cls(read_file(path), [path])

    @property
    def names(self) -> str:
        return " and ".join(map(str, self.paths)) or "config"

    def refuse(self, faults: Iterable[ConfigError]) -> None:
        """Raises ConfigError for the first of these, if there are any."""
        for fault in faults:
            raise ConfigError(self.explain(fault)) from None

    def explain(self, error: ConfigError) -> str:
        """The error with the files, and with the value as they say it."""
        if isinstance(error, FieldError):
            return f"{self.names}: {error.line(value_at(self.content, error.location))}"
        return f"{self.names}: {error}"


def main() -> int:
    """Check the files named on the command line."""
    faults = 0
    for name in sys.argv[1:]:
        try:
            read_file(Path(name))
        except ConfigError as error:
            print(error)
            faults += 1
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
