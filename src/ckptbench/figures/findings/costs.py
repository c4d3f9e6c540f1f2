"""Sentences on the tables `overhead`, `checkpoint_cost` and `sizes`: what checkpoints cost and weigh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from ckptbench.analysis.cost.sizes import SIZES_KEY
from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.answer.labels import counted, describe
from ckptbench.answer.setups import SYSTEM, in_words, ordered, separating, with_hardware
from ckptbench.figures.findings.words import (
    PERCENT,
    SECONDS,
    Row,
    Study,
    amount,
    bounded,
    capitalized,
    contains_zero,
    every,
    has_interval,
    listed,
    of_checkpoints,
    size,
)
from ckptbench.figures.kit.captions import continued
from ckptbench.matrix.interval import Interval

STALL = ["stall_s", "stall_s_lo", "stall_s_hi"]
COMPARED_IN = (*SYSTEM, "ranks", "interval")
"""Setups that are equal in these are compared with one another."""
NO_CHECKPOINTS = "No setup with checkpoints was timed: there is no cost of a checkpoint."


def sentences(tables: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    rows = setups(tables)
    interrupted = continued(tables["provenance"])
    not_timed = [f"{interrupted}."] if interrupted else []
    if rows.empty:
        if len(tables["scaling"]):
            yield NO_CHECKPOINTS
        yield from not_timed
        return
    named = rows.assign(name=study.names(rows, *of_checkpoints(rows)))
    same = named["repeats"].nunique() == 1
    yield from bounded([_of_setup(row, same) for row in records(named)], "overhead")
    yield from bounded(list(_extremes(named)), "checkpoint_cost")
    yield from _agreement(named)
    yield from _notes(named)
    yield from not_timed


def setups(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a setup with checkpoints, in order: its overhead, and where known its stall and the bytes of a version."""
    overhead = tables["overhead"]
    costs = tables["checkpoint_cost"][[*SETUP, *STALL]]
    weights = tables["sizes"][[*SIZES_KEY, "bytes"]]
    rows = overhead.merge(costs, on=list(SETUP), how="left").merge(
        weights, on=list(SIZES_KEY), how="left"
    )
    return ordered(
        with_hardware(rows), (*SYSTEM, "framework", "ranks", "strategy", "format", "interval")
    )


def _of_setup(row: Row, same_repeats: bool) -> str:
    """`PyTorch, 2 ranks: a checkpoint stops training for 0.3 s [0.2, 0.4] and weighs 189 MB; one taken every ...`"""
    facts: list[str] = []
    if pd.notna(row["stall_s"]):
        facts.append(f"stops training for {amount(row, 'stall_s', SECONDS)}")
    if pd.notna(row["bytes"]):
        facts.append(f"weighs {size(row['bytes'])}")
    parts = [" and ".join(facts), _overhead(row)]
    said = "; one ".join(part for part in parts if part)
    repeats = "" if same_repeats else f" ({counted(row['repeats'], 'repeat')})"
    return f"{row['name']}: a checkpoint {said}{repeats}.{_levels(row)}" if said else ""


def _levels(row: Row) -> str:
    """Of a strategy with levels: so that "taken every 2 steps" is not read as written to the disk every 2 steps."""
    if not row["levels"]:
        return ""
    number = counted(row["checkpoints"], "checkpoint")
    return f" Of its {number} so many reached each level: {row['levels']}."


def _overhead(row: Row) -> str:
    for column, how in (("paired", ""), ("in_run", ", estimated from inside the run")):
        if pd.isna(row[column]):
            continue
        shown = f"taken {_every(row)} has an overhead of {amount(row, column, PERCENT)}{how}"
        if has_interval(row, column) and contains_zero(row, column):
            return f"{shown}, which contains zero: no cost is shown"
        return shown
    return ""


def _every(row: Row) -> str:
    """`every epoch (8 steps)`."""
    interval = Interval.parse(row["interval"])
    words = describe("interval", row["interval"])
    if interval.unit != "epochs":
        return words
    return f"{words} ({counted(interval.every * row['steps_per_epoch'], 'step')})"


def _extremes(rows: pd.DataFrame) -> Iterator[str]:
    """Of setups that differ in framework, strategy and format alone: whose stall is the shortest, whose the longest."""
    columns = [name for name in COMPARED_IN if name in rows]
    known = rows[rows["stall_s_lo"].notna()]
    words = separating(known, columns)
    for _, group in groups(known, columns):
        if len(group) < 2:
            continue
        names = in_words(group, ["framework", *of_checkpoints(known)], ", ")
        where = in_words(group, words, ", ").iloc[0] if words else ""
        compared = _compared(group.assign(name=names))
        yield f"{capitalized(where)}: {compared}" if where else capitalized(compared)


def _compared(group: pd.DataFrame) -> str:
    by_length = group.sort_values("stall_s", kind="stable")
    two = len(by_length) == 2
    shortest, others = by_length.iloc[0], by_length.iloc[1:]
    longest, below = by_length.iloc[-1], by_length.iloc[:-1]
    not_apart_below = others[others["stall_s_lo"] <= shortest["stall_s_hi"]]
    not_apart_above = below[below["stall_s_hi"] >= longest["stall_s_lo"]]
    if two and not_apart_below.empty:
        return f"{shortest['name']} has a shorter stall than {longest['name']}."
    if two:
        both = listed([str(name) for name in by_length["name"]])
        return f"which stall is shorter cannot be said, as the intervals of {both} overlap."
    if len(not_apart_below) and len(not_apart_above):
        return (
            "which stall is the shortest, and which the longest, cannot be said, as their intervals overlap"
            f" ({_from_to(by_length)})."
        )
    ends = (("shortest", shortest, not_apart_below), ("longest", longest, not_apart_above))
    first, second = (_end(*end) for end in ends)
    return f"{first} {capitalized(second)}"


def _from_to(by_length: pd.DataFrame) -> str:
    """`PyTorch 0.3 s [0.2, 0.4] to Chainer 0.5 s [0.3, 0.7]`."""
    ends = records(by_length.iloc[[0, -1]])
    return " to ".join(f"{row['name']}: {amount(row, 'stall_s', SECONDS)}" for row in ends)


def _end(which: str, row: pd.Series, not_apart: pd.DataFrame) -> str:
    if not_apart.empty:
        return f"{row['name']} has the {which} stall."
    return (
        f"which stall is the {which} cannot be said, as the intervals of"
        f" {listed([str(row['name']), *not_apart['name']])} overlap."
    )


def _agreement(rows: pd.DataFrame) -> Iterator[str]:
    known = rows[rows["agree"].notna()]
    if known.empty:
        return
    agree = known["agree"].astype(bool)
    how = (
        "The two estimates of the overhead, against the baseline and from inside the run, agree"
        " within their intervals"
    )
    if agree.all():
        yield f"{how} in {every(len(known), 'setup')}."
        return
    apart = [
        f"{row['name']}, {describe('interval', row['interval'])}"
        f" ({amount(row, 'paired', PERCENT)} against {amount(row, 'in_run', PERCENT)})"
        for row in records(known[~agree])
    ]
    yield (
        f"{how} in {agree.sum()} of {counted(len(known), 'setup')}. They do not for"
        f" {_first(apart)}: do not quote these without finding out why."
    )


def _first(names: Sequence[str], most: int = 6) -> str:
    rest = len(names) - most
    return "; ".join(names) if rest <= 0 else f"{'; '.join(names[:most])} and {rest} more"


def _notes(rows: pd.DataFrame) -> Iterator[str]:
    number = int((rows["note"] != "").sum())
    if number:
        which = every(number, "setup") if number == len(rows) else f"{number} of {len(rows)} setups"
        yield f"The table overhead has a note on {which}. Read it before you quote."
