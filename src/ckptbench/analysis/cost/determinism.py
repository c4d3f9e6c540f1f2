"""The table `determinism_cost`: how much longer training takes in a framework's deterministic mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.estimates import paired_ratio
from ckptbench.analysis.cost.overhead import on_same_machine
from ckptbench.analysis.cost.statistics import Estimate, note_of_one_repeat, with_intervals
from ckptbench.analysis.cost.times import RunTimes, run_times, with_valid_timing
from ckptbench.analysis.tables.columns import NOTE, SYSTEM_COLUMNS
from ckptbench.analysis.tables.grouping import groups, of_first_recovery, records
from ckptbench.analysis.tables.schema import Column, Row, Table, with_ends
from ckptbench.matrix.interval import NEVER

DETERMINED = tuple(column for column in SYSTEM_COLUMNS if column.name != "deterministic")


DETERMINISM_COST = Table(
    "determinism_cost",
    "One row per system whose baseline ran in deterministic and in default mode. Times as in `overhead`.",
    tuple(column.name for column in DETERMINED),
    (
        *DETERMINED,
        Column("repeats", "integer", "1", "with valid timing in both modes"),
        Column("time_s", "number", "s", "training time in deterministic mode, mean over repeats"),
        Column("default_s", "number", "s", "the same in default mode"),
        *with_ends("cost", "1", "(time - default) / default, paired by repeat"),
        NOTE,
    ),
)


KEY = [column.name for column in DETERMINED]

Pairs = list[tuple[Row, Row]]
"""Rows of the table `runs`: a baseline in deterministic and in default mode."""


def determinism_cost(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `epochs` and `checkpoints`."""
    runs = with_valid_timing(tables["runs"])
    baselines = of_first_recovery(runs[runs["interval"] == str(NEVER)])
    times = run_times(tables, baselines)
    systems = [(key, pairs) for key, group in groups(baselines, KEY) if (pairs := _pairs(group))]
    timed_pairs = [
        [(times[row["run"]], times[other["run"]]) for row, other in pairs] for _, pairs in systems
    ]
    ratios = with_intervals([paired_ratio(own) for own in timed_pairs])
    return DETERMINISM_COST.rows(
        _row(key, pairs, own, ratio.minus(1.0))
        for (key, pairs), own, ratio in zip(systems, timed_pairs, ratios, strict=True)
    )


def _pairs(baselines: pd.DataFrame) -> Pairs:
    modes: dict[bool, dict[int, Row]] = {True: {}, False: {}}
    for row in records(baselines):
        modes[row["deterministic"]][row["repeat"]] = row
    default = modes[False]
    return [(row, default[repeat]) for repeat, row in modes[True].items() if repeat in default]


def _row(
    key: Row, pairs: Pairs, timed_pairs: Sequence[tuple[RunTimes, RunTimes]], cost: Estimate
) -> Row:
    return {
        **key,
        "repeats": len(pairs),
        "time_s": np.mean([run.time_s for run, _ in timed_pairs]),
        "default_s": np.mean([other.time_s for _, other in timed_pairs]),
        **cost.columns("cost"),
        "note": "; ".join(_notes(pairs, cost)),
    }


def _notes(pairs: Pairs, cost: Estimate) -> Iterator[str]:
    if not on_same_machine(pairs):
        yield "the two modes ran on different machines, devices or file systems"
    if len(pairs) == 1:
        yield note_of_one_repeat(cost)
