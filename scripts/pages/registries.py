"""What a config can name, from the registries and from the docstrings of what they name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import starmap
from pathlib import Path

from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.plugin_spec import Entry, Option
from ckptbench.matrix.registry import FAULTS, FRAMEWORKS, RECOVERIES, STRATEGIES

OWN_FORMATS = "the framework's formats"


def frameworks() -> str:
    return _list(f"{_code(name)}: {_codes(entry.formats)}" for name, entry in FRAMEWORKS.items())


def models() -> str:
    return _list(f"{_code(name)}: {_folded(build)}" for name, build in ARCHITECTURES.items())


def faults() -> str:
    return _list(f"{_code(name)}{_options(entry, ': ')}" for name, entry in FAULTS.items())


def strategies() -> str:
    return "\n".join(
        _section(name, entry, f"in {_codes(entry.formats, OWN_FORMATS)}", entry.location)
        for name, entry in STRATEGIES.items()
    )


def recoveries() -> str:
    return "\n".join(
        _section(name, entry, f"with {_codes(entry.strategies, 'all strategies')}", entry.launcher)
        for name, entry in RECOVERIES.items()
    )


PARTS = {each.__name__: each for each in (frameworks, models, faults, strategies, recoveries)}


def _section(name: str, entry: Entry, serves: str, location: str) -> str:
    """An entry under its heading: what it goes with, its options, and what its module says."""
    served = f"For {_codes(entry.frameworks, 'all frameworks')}, {serves}.{_options(entry)}"
    return f"### {_code(name)}\n\n{served}\n\n{_docstring(location)}\n"


def _docstring(location: str) -> str:
    """What the docstring of an entry's module says of it. The module is not imported: its library may not be installed.

    It begins with the kind and the name, as "The strategy `native`: ".
    """
    spec = find_spec(location.partition(":")[0])
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    words = text.partition(": ")[2]
    return words[:1].upper() + words[1:]


def _options(entry: Entry, before: str = " Options, with defaults: ") -> str:
    options = ", ".join(starmap(_option, entry.options.items()))
    return f"{before}{options}." if options else ""


def _option(name: str, default: Option | tuple[str, ...]) -> str:
    value, *others = default if isinstance(default, tuple) else (default,)
    if value == "":
        return f"{_code(name)}, of a list under `failures`"
    words = _code(f"{name}: {str(value).lower() if isinstance(value, bool) else value}")
    return f"{words} (or {_codes(others)})" if others else words


def _folded(documented: object) -> str:
    """A docstring on one line."""
    return " ".join((inspect.getdoc(documented) or "").split())


def _list(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _code(name: str) -> str:
    return f"`{name}`"


def _codes(names: Iterable[str] | None, every: str = "") -> str:
    return every if names is None else ", ".join(map(_code, names))
