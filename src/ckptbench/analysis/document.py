"""docs/tables.md, written from the schema: `python -m ckptbench.analysis.document > docs/tables.md`."""

from __future__ import annotations

from ckptbench.analysis.derived import DERIVED
from ckptbench.analysis.raw import RAW
from ckptbench.analysis.schema import Table

INTRODUCTION = """\
# Tables

`results/tables/<name>.parquet` and `.csv`. Written from the schema in `src/ckptbench/analysis` by
`python -m ckptbench.analysis.document`; a test fails where this page and the schema differ.

A missing value is null in parquet and empty in CSV. Types are those of pandas. Ratios are fractions: 0.05 is 5 %.
Intervals are two-level bootstrap 95 % intervals; of few repeats they are too narrow: see
`src/ckptbench/analysis/statistics.py` for how much.
A **setup** is everything that makes a cell but its repeat. Words are those of the README.
"""


def document() -> str:
    """The whole page."""
    return "\n".join(
        [
            INTRODUCTION,
            *_section("What the run folders say", RAW),
            *_section("What follows from it", DERIVED),
        ]
    )


def _section(title: str, tables: tuple[Table, ...]) -> list[str]:
    return [f"# {title}\n", *(table.document() for table in tables)]


if __name__ == "__main__":
    print(document(), end="")
