"""Sentences on the tables `resume_proof`, `determinism_cost` and `restore`: what restarts give back, and how fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.grouping import records
from ckptbench.answer.labels import describe
from ckptbench.answer.setups import SYSTEM, ordered, varying, with_hardware
from ckptbench.figures import controls, proofs, restore
from ckptbench.figures.findings.words import (
    HOW_MANY,
    PERCENT,
    SECONDS,
    Row,
    Study,
    amount,
    bounded,
    capitalized,
    contains_zero,
    has_interval,
    of_checkpoints,
)
from ckptbench.figures.proofs import AGAIN, RESUMED

KINDS = {
    RESUMED: ("run that was killed and restarted", "runs that were killed and restarted"),
    AGAIN: ("second run of the same seed", "second runs of the same seed"),
}
SAME = "the same bits as the uninterrupted run"
OTHER = "other bits than the uninterrupted run"
LONGER = "Deterministic mode makes training longer"
SHORTER = "Deterministic mode makes training shorter"
NOT_SHOWN = "No cost of deterministic mode is shown where the interval contains zero"
UNKNOWN = "Without a second repeat it is not known whether deterministic mode costs anything"


def proof(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """How many runs of each mode have the same bits as the uninterrupted run, and which have not."""
    compared = proofs.prepared(tables["resume_proof"])
    for mode in proofs.modes(compared):
        for kind, (one, several) in KINDS.items():
            own = compared[(compared["deterministic"] == mode) & (compared["kind"] == kind)]
            if len(own):
                words = _equal(own, one, several)
                yield f"{capitalized(describe('deterministic', mode))}: {words}"
    yield from _controls(controls.prepared(tables["resume_proof"]))


def _equal(runs: pd.DataFrame, one: str, several: str) -> str:
    number, equal = len(runs), int(runs["bit_equal"].sum())
    if number == 1:
        return f"the only {one} gave {SAME if equal else OTHER}."
    if equal == number:
        return f"{HOW_MANY.get(number, f'all {number}')} {several} gave {SAME}."
    parted = "; ".join(proofs.parted(runs))
    return f"{equal or 'none'} of {number} {several} gave {SAME}. Others came from {parted}."


def _controls(rows: pd.DataFrame) -> Iterator[str]:
    if rows.empty:
        return
    missed = "; ".join(controls.missed(rows))
    noticed = int(controls.caught(rows).sum())
    done = "restart" if len(rows) == 1 else "restarts"
    yield (
        f"{len(rows)} {done} left out a part of the state on purpose. The comparison noticed"
        f" {_how_many(noticed, len(rows))}{f', not {missed}' if missed else ''}."
    )


def _how_many(some: int, of: int) -> str:
    if some == of:
        return "it" if of == 1 else "all"
    return "none" if not some else f"{some} of them"


def cost(tables: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    """What deterministic mode costs, where an interval shows it, and where not."""
    rows = ordered(
        with_hardware(tables["determinism_cost"]),
        [name for name in (*SYSTEM, "framework", "ranks") if name != "deterministic"],
    )
    named = records(rows.assign(name=study.names(rows)))
    for verdict in (LONGER, SHORTER, NOT_SHOWN, UNKNOWN):
        own = [
            f"{row['name']}: {amount(row, 'cost', PERCENT)}"
            for row in named
            if _verdict(row) == verdict
        ]
        if own:
            few = "; ".join(bounded(own, "determinism_cost")).removesuffix(".")
            yield f"{verdict} ({few})."


def _verdict(row: Row) -> str:
    if not has_interval(row, "cost"):
        return UNKNOWN
    if contains_zero(row, "cost"):
        return NOT_SHOWN
    return LONGER if row["cost"] > 0 else SHORTER


def restore_time(tables: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    """How long a restart takes until the end of its first step: medians."""
    restarts = restore.of_checkpoints(tables["restore"])
    if restarts.empty:
        return
    rows = restore.prepared(restarts)
    others = [*of_checkpoints(rows), *varying(rows, ["interval"]), "cache"]
    named = rows.assign(name=study.names(rows, *others))
    yield from bounded([_restart(row) for row in records(named)], "restore")


def _restart(row: Row) -> str:
    total = sum(row[part] for part in restore.PARTS)
    median = "" if row["restarts"] == 1 else f" (medians of {row['restarts']} restarts)"
    doubt = (
        ""
        if row["shown"]
        else f" The kernel's counters do not show that every such load was {row['cache']}."
    )
    load = amount(row, "load_s", SECONDS)
    return (
        f"{row['name']}: a restart takes {amount({'total': total}, 'total', SECONDS)},"
        f" {load} of it to load the checkpoint{median}.{doubt}"
    )
