"""Sentences on the tables `goodput` and `outcome`.

They say what a failure costs, most of it by what, what part of the time was useful, and what training came out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.columns import LOST_PARTS
from ckptbench.analysis.tables.grouping import records
from ckptbench.answer.labels import counted
from ckptbench.answer.setups import CHECKPOINT, SYSTEM, ordered, varying, with_hardware
from ckptbench.figures.findings.words import (
    PERCENT,
    SECONDS,
    Row,
    Study,
    Unit,
    amount,
    bounded,
    of_checkpoints,
)

NAMES = {
    "unfinished_s": "unfinished work",
    "detection_s": "detection",
    "ending_s": "ending the other ranks",
    "choice_s": "the choice of a version",
    "launch_s": "launch",
    "import_s": "import",
    "build_s": "build",
    "regroup_s": "regrouping",
    "load_s": "load",
    "again_s": "work done again",
    "slower_s": "slower steps",
    "rest_s": "the rest",
}
DIFFERENCES = {
    "training_loss": ("training loss", Unit("")),
    "test_loss": ("test loss", Unit("")),
    "test_accuracy": ("test accuracy", Unit("points", 100.0)),
}
"""What a difference is called, and its unit."""
NOTHING_S = 0.05
"""A part that is negative by less counts as none."""
LARGEST = 3
"""How many parts are named."""


def sentences(tables: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    """One for each setup that failures struck."""
    known = tables["goodput"]
    rows = _named(known[known["failures"] > 0], study)
    yield from bounded([_of_setup(row) for row in records(rows)], "goodput")


def outcomes(tables: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    """One for each setup that failures struck: whether training was kept or changed, and what the final model has seen."""
    rows = _named(tables["outcome"], study)
    yield from bounded([_came_out(row) for row in records(rows)], "outcome")


def _named(known: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The rows in order, with the column `name`."""
    rows = ordered(with_hardware(known), (*SYSTEM, "framework", *CHECKPOINT, "history", "recovery"))
    others = dict.fromkeys([*of_checkpoints(rows), *varying(rows, ["interval", "history"])])
    last = [name for name in ("recovery",) if others.pop(name, name) is None]
    return rows.assign(name=study.names(rows, *others, *last)) if len(rows) else rows


def _of_setup(row: Row) -> str:
    parts = {name: row[name] / row["failures"] for name in LOST_PARTS}
    total_s = sum(parts.values())
    largest = sorted(parts, key=lambda name: -parts[name])[:LARGEST]
    shown = {name: f"{100 * parts[name] / total_s:.0f} %" if total_s else "" for name in largest}
    if (
        min(parts.values()) < -NOTHING_S
    ):  # fewer ranks may be faster: parts of such a sum say nothing
        largest = sorted(parts, key=lambda name: -abs(parts[name]))[:LARGEST]
        shown = {name: f"{parts[name]:.1f} s" for name in largest}
    named = ", ".join(f"{NAMES[name]} {shown[name]}" for name in largest)
    number = round(row["failures"] * row["repeats"])
    struck, each = counted(number, "failure"), "" if number == 1 else " each"
    useful = f"{amount(row, 'goodput', PERCENT)} of the time was useful"
    return (
        f"{row['name']}: {struck} cost {amount({'cost': total_s}, 'cost', SECONDS)}{each} ({named}); "
        f"at {row['failures_per_hour']:.0f} failures an hour {useful}."
    )


def _came_out(row: Row) -> str:
    return f"{row['name']}: {_kept(row)}. {_seen(row)}."


def _kept(row: Row) -> str:
    if pd.isna(row["kept"]):
        return "no undisturbed run tells whether training was kept"
    number, equal = row["compared_repeats"], row["bit_equal_repeats"]
    if row["kept"]:
        same = (
            "the same bits as the undisturbed"
            if number
            else "the same loss and accuracy as the undisturbed"
        )
        return f"training was kept: {counted(number or row['paired_repeats'], 'run')} gave {same}"
    found = [
        f"{words} {_signed(row, f'{name}_difference', unit)}"
        for name, (words, unit) in DIFFERENCES.items()
        if not pd.isna(row[f"{name}_difference"])
    ]
    bits = f" ({equal or 'none'} of {counted(number, 'run')} gave the same bits)" if number else ""
    return f"training was changed{bits}: {', '.join(found)} against the undisturbed"


def _signed(row: Row, column: str, unit: Unit) -> str:
    """`+0.02 [-0.01, 0.05]`."""
    sign = "+" if row[column] > 0 else ""
    return f"{sign}{amount(row, column, unit)}"


def _seen(row: Row) -> str:
    planned = row["planned_samples"]
    never, twice, undone = (
        100 * row[name] / planned for name in ("never_seen", "seen_twice", "undone_samples")
    )
    seen = "has seen every sample once an epoch"
    if never or twice:
        seen = f"has not seen {never:.2g} % of the samples, and {twice:.2g} % more than once"
    return f"The final model {seen}; {undone:.2g} % more were computed and undone"
