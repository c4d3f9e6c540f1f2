"""The columns of all tables, from their registry, and the captions of tables in reports.

A column has one line, in the first table that has it; what several tables share stands once, at the top.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ckptbench.analysis.tables.columns import SETUP, SETUP_COLUMNS, SYSTEM
from ckptbench.analysis.tables.registry import (
    AUDITED,
    COLLECTED,
    DECIDED,
    DERIVED,
    EVERY,
    TableEntry,
)
from ckptbench.analysis.tables.schema import Column, Table

SHARED = f"""\
# Columns of several tables

*Setup*: the columns down to `{SETUP[-1]}`, which identify a cell apart from its repeat. *System*: those down to `{SYSTEM[-1]}`, which a cell shares with its baseline.
A table with `strategy`, `history` or `recovery` also has its `_name`, without options, and `_options`, a JSON object.
"""
TABLES_OF_SHARED = 3
"""A column that so many tables have is explained once, at the top."""
LEAST_WORDS = 4
"""A meaning of fewer words is said again instead of naming the table that says it."""
MOST_MISSING = 3
"""A table without a third of the columns of *setup* names the ones that it has."""
UNITS = {
    "s": "_s", "ns": "_ns", "bytes": "bytes", "steps": "steps", "samples": "samples", "min": "minutes", "GPU h": "gpu_hours",
    "GPU-h": "gpu_hours", "samples/s": "samples_per_s", "1": "", "": "",
}  # fmt: skip
"""How the name of a column ends that has this unit in it."""
END = re.compile(r"_(lo|hi)$")
SPEC_PART = re.compile(r"_(name|options)$")


def document() -> str:
    """All columns, table by table."""
    page = _Page()
    return "\n".join(
        [
            *page.shared_columns(),
            *page.section("What the run folders say", COLLECTED.values()),
            *page.section("What follows from it", DERIVED.values()),
            *page.section("What to do about it", DECIDED.values()),
            *page.section("Whether to believe it", AUDITED.values()),
        ]
    )


def captions() -> dict[str, str]:
    """What a report says below each table, in reStructuredText, by the table's name."""
    shown = {**DERIVED, **DECIDED}
    said = {name: entry.table.row.replace("`", "``") for name, entry in shown.items()}
    return {name: f"{row} ``docs/tables.md`` explains its columns.\n" for name, row in said.items()}


@dataclass(slots=True)
class _Page:
    """What the page has said so far: by name of a column, its meanings and the tables that say them."""

    said: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    shared: list[Column] = field(default_factory=list)

    def shared_columns(self) -> Iterator[str]:
        counted = Counter(column for entry in EVERY.values() for column in entry.table.columns)
        self.shared = [each for each, tables in counted.items() if tables >= TABLES_OF_SHARED and each not in SETUP_COLUMNS and not END.search(each.name)]  # fmt: skip
        yield SHARED
        columns = (*SETUP_COLUMNS, *self.shared)
        yield from (_line(each.name, each) for each in columns if not SPEC_PART.search(each.name))
        yield ""

    def section(self, title: str, entries: Iterable[TableEntry]) -> Iterator[str]:
        yield f"# {title}\n"
        for entry in entries:
            yield from self._table(entry.table)

    def _table(self, table: Table) -> Iterator[str]:
        own = [column for column in table.columns if column not in (*SETUP_COLUMNS, *self.shared)]
        said = {*table.key, *(column.name for column in own)}
        rest = [name for name in table.names if name not in said]
        yield f"## {table.name}\n"
        also = f"; also {_names(rest)}" if rest else ""
        yield f"Row: {table.row.removeprefix('One row per ')} By {_names(table.key)}{also}.\n"
        names = {column.name for column in own}
        lines = [(self._meaning(table, column), column) for column in own if not (END.search(column.name) and END.sub("", column.name) in names)]  # fmt: skip
        for meaning, alike in itertools.groupby(lines, key=lambda line: line[0]):
            columns = [column for _, column in alike]
            together = "`, `".join(column.name for column in columns)
            yield _line(together, columns[0], meaning, has_ends=f"{columns[0].name}_lo" in names)
        yield ""

    def _meaning(self, table: Table, column: Column) -> str:
        """The column's meaning; where an earlier table says the end of it, the name of that table in its place."""
        words = column.meaning
        for said, where in self.said.get(column.name, ()):
            before = words.removesuffix(said)
            if before != words and before in ("", f"{before[:-2]}: ") and len(said.split()) >= LEAST_WORDS:  # fmt: skip
                words = f"{before}as in `{where}`"
                break
        else:
            self.said.setdefault(column.name, []).append((words, table.name))
        return words


def _line(names: str, column: Column, meaning: str | None = None, *, has_ends: bool = False) -> str:
    unit = "" if column.name.endswith(UNITS.get(column.unit, "?")) else f" ({column.unit})"
    words = column.meaning if meaning is None else meaning
    return f"- `{names}`{' ±' if has_ends else ''}{unit}{': ' if words else ''}{words}"


def _names(names: Sequence[str]) -> str:
    """These columns, with *setup* or *system* in place of what these stand for, and `strategy` in place of its parts `strategy_name` and `strategy_options`."""
    for word, bundle in (("setup", SETUP), ("system", SYSTEM)):
        missing = [name for name in bundle if name not in names]
        if len(missing) * MOST_MISSING < len(bundle):
            shown = ", ".join(f"`{name}`" for name in missing if not SPEC_PART.search(name))
            without = f" (without {shown})" if missing else ""
            others = [name for name in names if name not in bundle]
            return ", ".join([f"*{word}*{without}", *(f"`{name}`" for name in others)])
    return ", ".join(f"`{name}`" for name in names if SPEC_PART.sub("", name) not in names or not SPEC_PART.search(name))  # fmt: skip
