"""Checks of the study's own runs, from its tables: equal runs, undisturbed runs, cold and warm restarts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.collect.machine import LIMITS
from ckptbench.analysis.cost.statistics import PerRepeat, with_intervals
from ckptbench.analysis.cost.times import RunTimes, run_times, with_valid_timing
from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import groups, of_first_recovery
from ckptbench.audit.check import NOTHING, Check, Question, exactly
from ckptbench.matrix.interval import NEVER

TABLES = ("runs", "steps", "epochs", "checkpoints", "machine", "restore")
"""The tables of a study that are read here."""
LIMIT, WIDEST = 0.005, 0.05
NAMED = 3
"""How many runs are named here. The tables have all."""
STUDY = "the study"
TAKERS = {"stolen": "the host took", "others": "other programs used"}
Tables = Mapping[str, pd.DataFrame]


def equal_runs(tables: Tables) -> Check:
    """A/A: the study's baselines against one another. Two runs of the same must not differ, but for noise.

    Each baseline stands in one pair: repeat 1 against repeat 0, 3 against 2, of the same system. The overhead of one
    against the other is estimated as that of checkpoints is, over all pairs. Which repeat comes first has no meaning, so the truth is 0.
    """
    pairs = list(_pairs(tables)) if set(TABLES[:4]) <= set(tables) else []
    estimate = NOTHING
    if len(pairs) > 1:
        ratio = PerRepeat.ratio([one.time_s for one, _ in pairs], [two.time_s for _, two in pairs])
        own = PerRepeat.mean(
            ratio.each
        )  # each pair alike, or the slowest system alone would decide
        (estimate,) = (found.minus(1.0) for found in with_intervals([own]))
    question = Question(
        check="A/A",
        subject=f"overhead of one baseline against another, {len(pairs)} pair{'' if len(pairs) == 1 else 's'} of baselines",
        limit=LIMIT,
        holds="runs that are the same measure the same: no overhead comes from the order of the runs",
        fails="runs that are the same differ by more than noise: the machine became faster or slower during the study, so do not quote its overheads",
        unknown="a study with two repeats of two setups, or four of one, is needed: run it, then the audit again"
        if math.isnan(estimate.value)
        else "inconclusive: the study's baselines differ too much",
    )
    return question.truth(0.0, estimate, widest=WIDEST)


def _pairs(tables: Tables) -> Iterator[tuple[RunTimes, RunTimes]]:
    valid = with_valid_timing(tables["runs"])
    baselines = of_first_recovery(valid[valid["interval"] == str(NEVER)])
    if baselines.empty:
        return
    times = run_times(tables, baselines)
    for _, group in groups(baselines, SYSTEM):
        runs = list(group.sort_values("repeat")["run"])
        for one, other in zip(runs[1::2], runs[::2], strict=False):
            yield times[one], times[other]


def undisturbed_runs(tables: Tables, of: str = STUDY) -> list[Check]:
    """Whether the host of a virtual machine or other programs took CPU time from runs. `of` says whose they are."""
    machine = tables.get("machine", pd.DataFrame(columns=["run", *LIMITS]))
    return [_undisturbed(name, limit, machine, of) for name, limit in LIMITS.items()]


def _undisturbed(name: str, limit: float, machine: pd.DataFrame, of: str) -> Check:
    worst = machine[machine[name].notna()].sort_values(name, ascending=False)
    over = worst[worst[name] > limit]
    named = [f"{row['run']} ({row[name]:.1%})" for _, row in over.iterrows()]
    remedy = f"{_first(named)}. Repeat them on a quiet machine; the note of the table overhead names their setups"
    if of != STUDY:
        remedy = "close other programs and run the audit again"
    question = Question(
        check="disturbed runs",
        subject=f"largest share of CPU time that {TAKERS[name]} during a run of {of}",
        limit=limit,
        holds=f"none of {len(worst)} runs was disturbed by it",
        fails=f"{len(over)} of {len(worst)} runs were disturbed: {remedy}",
        unknown=f"no run of {of} has these counters: none ran yet, or they are of an earlier version or of several nodes",
    )
    return question.at_most(exactly(float(worst[name].iloc[0])) if len(worst) else NOTHING)


def cold_restarts(tables: Tables) -> list[Check]:
    """Whether the study's restarts read from storage or from memory, as asked. None if it has none."""
    restore = tables.get("restore")
    if restore is None or restore.empty:
        return []
    shown = restore["cold_shown"]
    wrong = restore[~shown.fillna(False).astype(bool)]
    question = Question(
        check="cold reads",
        subject="part of the study's restarts whose reads were as cold or warm as asked",
        limit=1.0,
        holds="the kernel's counters agree with every restart",
        fails=f"not shown of {_first(sorted(set(wrong['run'])))}: see the table restore",
        unknown="the kernel counted no reads of the restarts",
    )
    part = exactly(1 - len(wrong) / len(restore)) if shown.notna().any() else NOTHING
    return [question.at_least(part)]


def _first(runs: list[str]) -> str:
    return ", ".join(runs[:NAMED]) + (" and more" if len(runs) > NAMED else "")
