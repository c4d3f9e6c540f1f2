"""The table `determinism_cost`: how much longer training takes in a framework's deterministic mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.derived_proof import DETERMINED, DETERMINISM_COST
from ckptbench.analysis.estimates import paired
from ckptbench.analysis.grouping import groups, records
from ckptbench.analysis.overhead import on_same_machine
from ckptbench.analysis.statistics import FEW_REPEATS, generator
from ckptbench.analysis.times import RunTimes, run_times, timed
from ckptbench.cells import NEVER

KEY = [column.name for column in DETERMINED]

Row = dict[str, Any]
Pairs = list[tuple[Row, Row]]
"""Rows of the table `runs`: a baseline in deterministic and in default mode."""


def determinism_cost(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `epochs` and `checkpoints`."""
    times, runs = run_times(tables), timed(tables["runs"])
    systems = groups(runs[runs["interval"] == str(NEVER)], KEY)
    return DETERMINISM_COST.rows(
        _row(key, pairs, times) for key, group in systems if (pairs := _pairs(group))
    )


def _pairs(baselines: pd.DataFrame) -> Pairs:
    modes: dict[bool, dict[int, Row]] = {True: {}, False: {}}
    for row in records(baselines):
        modes[row["deterministic"]][row["repeat"]] = row
    default = modes[False]
    return [(row, default[repeat]) for repeat, row in modes[True].items() if repeat in default]


def _row(key: Row, pairs: Pairs, times: Mapping[str, RunTimes]) -> Row:
    timed_pairs = [(times[row["run"]], times[other["run"]]) for row, other in pairs]
    random = generator("determinism_cost", tuple(key.values()))
    cost = paired(timed_pairs, epochs_per_block=1, random=random)
    return {
        **key,
        "repeats": len(pairs),
        "time_s": np.mean([run.time_s for run, _ in timed_pairs]),
        "default_s": np.mean([other.time_s for _, other in timed_pairs]),
        "cost": cost.value,
        "cost_lo": cost.interval.lo,
        "cost_hi": cost.interval.hi,
        "note": "; ".join(_notes(pairs)),
    }


def _notes(pairs: Pairs) -> Iterator[str]:
    if not on_same_machine(pairs):
        yield "the two modes ran on different machines, devices or file systems"
    if len(pairs) == 1:
        yield "one repeat: the interval shows the variation within a run only"
    elif len(pairs) < FEW_REPEATS:
        yield f"of fewer than {FEW_REPEATS} repeats the interval is too narrow"
