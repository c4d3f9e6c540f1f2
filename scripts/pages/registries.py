"""What a config can name, from the registries and from the docstrings of what they name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from itertools import starmap

from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.plugin_spec import Entry, Option
from ckptbench.matrix.registry import (
    FAILURE_KINDS,
    FAULTS,
    FRAMEWORKS,
    NOTHING,
    OF_SEVERAL_RANKS,
    OMISSIONS,
    RECOVERIES,
    STRATEGIES,
)
from scripts.pages.docstring import docstring

OWN_FORMATS = "the framework's formats"


def frameworks() -> str:
    return "\n".join(
        f"### {_code(name)}\n\nFormats, the default first: {_codes(entry.formats)}.\n\n"
        f"{docstring(entry.location.partition(':')[0])}\n"
        for name, entry in FRAMEWORKS.items()
    )


def models() -> str:
    return _list(f"{_code(name)}: {_folded(build)}" for name, build in ARCHITECTURES.items())


def faults() -> str:
    return _list(f"{_code(name)}{_options(entry, ': ')}" for name, entry in FAULTS.items())


def failure_kinds() -> str:
    return _list(f"{_code(name)}: {meaning}" for name, meaning in FAILURE_KINDS.items())


def omissions() -> str:
    """Each with the frameworks to which it matters."""
    concerned = {
        part: [name for name, entry in FRAMEWORKS.items() if part in entry.omissions]
        for part in OMISSIONS
        if part != NOTHING
    }
    return _list(
        f"{_code(part)}{', from two ranks on' if part in OF_SEVERAL_RANKS else ''}: "
        f"{OMISSIONS[part]} ({_codes(names) if len(names) < len(FRAMEWORKS) else 'all frameworks'})"
        for part, names in concerned.items()
    )


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


PARTS = {
    each.__name__: each
    for each in (frameworks, models, faults, failure_kinds, omissions, strategies, recoveries)
}


def _section(name: str, entry: Entry, serves: str, location: str) -> str:
    """An entry under its heading: what it goes with, its options, and what its module says."""
    served = f"For {_codes(entry.frameworks, 'all frameworks')}, {serves}.{_options(entry)}"
    return f"### {_code(name)}\n\n{served}\n\n{_said(location)}\n"


def _said(location: str) -> str:
    """What the docstring of an entry's module says of it, behind "The strategy `native`: "."""
    words = docstring(location.partition(":")[0]).partition(": ")[2]
    return words[:1].upper() + words[1:]


def _options(entry: Entry, before: str = " Options: ") -> str:
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
