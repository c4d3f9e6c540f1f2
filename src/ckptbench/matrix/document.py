"""docs/names.md, written from the registries: `python -m ckptbench.matrix.document > docs/names.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence

from ckptbench.matrix.catalogue import (
    FORMAT_LABELS,
    FRAMEWORKS,
    RECOVERIES,
    STRATEGIES,
    FrameworkEntry,
)
from ckptbench.matrix.variant import Option
from ckptbench.networks.models import ARCHITECTURES

INTRODUCTION = """\
# Names

What a config can name. Written from the registries in `src/ckptbench/matrix/catalogue.py` and
`src/ckptbench/networks/models.py` by `python -m ckptbench.matrix.document`; a test fails where this page and the
registries differ. [config/README.md](../config/README.md) says what the fields mean.
"""


def document() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, _frameworks(), _formats(), _models(), _strategies(), _recoveries()])  # fmt: skip


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
    rows = (
        (_code(format), label, _codes(n for n, e in FRAMEWORKS.items() if format in e.formats))
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
            _options(entry.options),
        )
        for name, entry in STRATEGIES.items()
    )
    return _section(
        "Strategies", ("strategy", "frameworks", "formats", "stages", "options and defaults"), rows
    )


def _recoveries() -> str:
    rows = ((_code(name), _options(entry.options)) for name, entry in RECOVERIES.items())
    return _section("Recoveries", ("recovery", "options and defaults"), rows)


def _options(options: Mapping[str, Option]) -> str:
    return _codes(f"{name}: {default}" for name, default in options.items()) or "none"


def _code(name: str) -> str:
    return f"`{name}`"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(_code, names))


def _section(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join([f"## {title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


if __name__ == "__main__":
    print(document(), end="")
