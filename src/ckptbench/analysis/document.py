"""docs/tables.md, written from the registry of tables: `python -m ckptbench.analysis.document > docs/tables.md`."""

from __future__ import annotations

from collections.abc import Iterable

from ckptbench.analysis.tables.registry import AUDITED, COLLECTED, DECIDED, DERIVED, OWN, TableEntry

INTRODUCTION = """\
# Tables

`results/tables/<name>.parquet` and `.csv`; of a study of an own training, those of them that it has are in `results/own/tables`. Written from the registry in `src/ckptbench/analysis/tables` by
`python -m ckptbench.analysis.document`; a test fails where this page and the registry differ.

A missing value is null in parquet and empty in CSV. Types are those of pandas. Ratios are fractions: 0.05 is 5 %.
Intervals are 95 % intervals of Student's t over repeats; [method.md](method.md#intervals) says how they are made, and how
often they hold the truth.
A **setup** is everything that makes a cell but its repeat. Words are those of the README.
"""
OWN_WORDS = """\
Other tables of an own training have the columns above, filled with what the probe sees from outside: `durable_s` is when the engine said that a
checkpoint was finished, `slowdown_s` the hidden slowdown, `steady` says that a checkpoint is not the first of its run, `memory_bytes` is above that at the start of
a save. What is not known is 0 or empty: model, dataset, batch size, epochs, seed. `resume_proof`, `consistency` and `outcome` have no rows.
"""


def document() -> str:
    """The whole page."""
    return "\n".join(
        [
            INTRODUCTION,
            *_section("What the run folders say", COLLECTED.values()),
            *_section("What follows from it", DERIVED.values()),
            *_section("What to do about it", DECIDED.values()),
            *_section("Whether to believe it", AUDITED.values()),
            *_section("What the probe saw of an own training", OWN.values(), OWN_WORDS),
        ]
    )


def _section(title: str, entries: Iterable[TableEntry], *words: str) -> list[str]:
    return [f"# {title}\n", *words, *(entry.table.document() for entry in entries)]


if __name__ == "__main__":
    print(document(), end="")
