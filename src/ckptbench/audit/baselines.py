"""A/A: the study's baselines against one another. Two runs of the same must not differ, but for noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.cost.statistics import Repeated, estimates
from ckptbench.analysis.cost.times import RunTimes, run_times, timed
from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import groups, of_first_recovery
from ckptbench.audit.check import NOTHING, Check, Words, against_truth
from ckptbench.matrix.interval import NEVER

TABLES = ("runs", "steps", "epochs", "checkpoints")
"""The tables of a study that it reads."""
LIMIT, WIDEST = 0.005, 0.05
Pair = tuple[RunTimes, RunTimes]


def check(tables: Mapping[str, pd.DataFrame]) -> Check:
    """Each baseline stands in one pair: repeat 1 against repeat 0, 3 against 2, of the same system.

    The overhead of one against the other is then estimated as that of checkpoints is. Of one setup alone there are few
    pairs, so those of all are taken together; which repeat comes first has no meaning, so the truth is 0.
    """
    pairs = list(_pairs(tables)) if all(name in tables for name in TABLES) else []
    estimate = NOTHING
    if len(pairs) > 1:
        ratio = Repeated.ratio([one.time_s for one, _ in pairs], [two.time_s for _, two in pairs])
        own = Repeated.mean(ratio.each)  # each pair alike, or the slowest system alone would decide
        (estimate,) = (found.minus(1.0) for found in estimates([own]))
    few = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of baselines"
    return against_truth(
        "A/A",
        f"overhead of one baseline against another, {few}",
        estimate,
        truth=0.0,
        limit=LIMIT,
        widest=WIDEST,
        unit="1",
        words=Words(
            holds="runs that are the same measure the same: no overhead comes from the order of the runs",
            fails="runs that are the same differ by more than noise: the machine became faster or slower during the study, so do not quote its overheads",
            unknown="the study's baselines differ too much to tell"
            if not math.isnan(estimate.value)
            else "a study with two repeats of two setups, or four of one, is needed: run it, then the audit again",
        ),
    )


def _pairs(tables: Mapping[str, pd.DataFrame]) -> Iterator[Pair]:
    valid = timed(tables["runs"])
    baselines = of_first_recovery(valid[valid["interval"] == str(NEVER)])
    if baselines.empty:
        return
    times = run_times(tables, baselines)
    for _, group in groups(baselines, SYSTEM):
        runs = list(group.sort_values("repeat")["run"])
        for one, other in zip(runs[1::2], runs[::2], strict=False):
            yield times[one], times[other]
