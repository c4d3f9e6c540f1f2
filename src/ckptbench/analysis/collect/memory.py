"""The table `memory`: what each rank and its processes took, sampled beside the clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from ckptbench.analysis.collect.rank_events import rank_rows
from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import ATTEMPT, RANK, RUN
from ckptbench.analysis.tables.schema import Column, Row, Table

MEMORY = Table(
    "memory",
    "One row a run, rank and sample of memory.",
    ("run", "rank", "attempt", "at_ns"),
    (
        RUN,
        RANK,
        ATTEMPT,
        Column("when", "text", "", "as in docs/run-folder.md"),
        Column("step", "integer", "1", "completed steps of the whole run"),
        Column("at_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("bytes", "integer", "bytes", "resident anonymous memory of the rank and its processes, and their shared memory once"),
        Column("shared_bytes", "integer", "bytes", "of these, shared memory"),
        Column("peak_bytes", "integer", "bytes", "the largest `bytes` since the epoch or the last save began"),
        Column("threads", "integer", "1", "of the rank and of these processes"),
        Column("processes", "integer", "1", "that the rank has started, and that these have"),
    ),
)  # fmt: skip


def memory(runs: Sequence[Run]) -> pd.DataFrame:
    return MEMORY.rows(rank_rows(runs, _samples))


def _samples(run: Run, part: RankRun) -> Iterator[Row]:
    for attempt, sample in part.trace.memory:
        yield {"attempt": attempt, **{name: getattr(sample, name) for name in SAMPLED}}


SAMPLED = (
    "when",
    "step",
    "at_ns",
    "bytes",
    "shared_bytes",
    "peak_bytes",
    "threads",
    "processes",
)
