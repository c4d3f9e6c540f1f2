"""docs/names.md, written from the registries: `python -m ckptbench.matrix.document > docs/names.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

from ckptbench.matrix.catalogue import (
    FAULTS,
    FORMAT_LABELS,
    FRAMEWORKS,
    RECOVERIES,
    STRATEGIES,
    FaultsEntry,
    FrameworkEntry,
    RecoveryEntry,
    StrategyEntry,
)
from ckptbench.networks.models import ARCHITECTURES

INTRODUCTION = """\
# Names

What a config can name. Written from the registries in `src/ckptbench/matrix/catalogue.py` and
`src/ckptbench/networks/models.py` by `python -m ckptbench.matrix.document`; a test fails where this page and the
registries differ. [config/README.md](../config/README.md) says what the fields mean.
"""


def document() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, _frameworks(), _formats(), _models(), _strategies(), _faults(), _recoveries()])  # fmt: skip


def _frameworks() -> str:
    return _section(
        "Frameworks",
        ("framework", "in figures", "formats, the default first", "negative controls", "environment"),
        (
            (_code(name), entry.label or name, _codes(entry.formats), _codes(entry.omissions), _environment(entry))
            for name, entry in FRAMEWORKS.items()
        ),
    )  # fmt: skip


def _environment(entry: FrameworkEntry) -> str:
    return f"compiled by `{entry.recipe}`" if entry.recipe else "installed from its lock"


def _formats() -> str:
    writers = [(name, entry.formats) for name, entry in FRAMEWORKS.items()]
    writers += [(name, entry.formats or ()) for name, entry in STRATEGIES.items()]
    rows = (
        (_code(format), label, _codes(name for name, formats in writers if format in formats))
        for format, label in FORMAT_LABELS.items()
    )
    return _section("Formats", ("format", "in figures", "written by"), rows)


def _models() -> str:
    rows = (
        (_code(name), (inspect.getdoc(build) or "").partition("\n")[0])
        for name, build in ARCHITECTURES.items()
    )
    return _section("Models", ("model", "what it is"), rows)


def _strategies() -> str:
    rows = (
        (
            _code(name),
            "all" if entry.frameworks is None else _codes(entry.frameworks),
            "the framework's" if entry.formats is None else _codes(entry.formats),
            _codes(entry.stages),
            _options(entry),
        )
        for name, entry in STRATEGIES.items()
    )
    return _section(
        "Strategies", ("strategy", "frameworks", "formats", "stages", "options and defaults"), rows
    )


def _faults() -> str:
    rows = ((_code(name), _options(entry)) for name, entry in FAULTS.items())
    return _section("Faults", ("faults", "options and defaults"), rows)


def _recoveries() -> str:
    rows = (
        (
            _code(name),
            "all" if entry.frameworks is None else _codes(entry.frameworks),
            "all" if entry.strategies is None else _codes(entry.strategies),
            "go on" if entry.elastic else "start again",
            f"`<framework>_{name}`" if entry.own_environment else "the framework's",
            _options(entry),
        )
        for name, entry in RECOVERIES.items()
    )
    return _section(
        "Recoveries",
        (
            "recovery",
            "frameworks",
            "strategies",
            "surviving ranks",
            "environment",
            "options and defaults",
        ),
        rows,
    )


def _options(entry: StrategyEntry | FaultsEntry | RecoveryEntry) -> str:
    return ", ".join(_option(entry, name) for name in entry.options) or "none"


def _option(entry: StrategyEntry | FaultsEntry | RecoveryEntry, name: str) -> str:
    default = _code(f"{name}: {entry.options[name]}")
    others = [value for value in entry.choices.get(name, ()) if value != entry.options[name]]
    return f"{default} (or {_codes(others)})" if others else default


def _code(name: str) -> str:
    return f"`{name}`"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(_code, names))


def _section(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join([f"## {title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


if __name__ == "__main__":
    print(document(), end="")
