"""The table `phases`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from ckptbench.analysis.collect.rank_events import duration_s, rank_rows
from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import ATTEMPT, RANK, RUN
from ckptbench.analysis.tables.schema import Column, Row, Table

PHASES = Table(
    "phases",
    "One row a run, rank, attempt and phase of its start.",
    ("run", "rank", "attempt", "start_ns"),
    (
        RUN,
        RANK,
        Column("node", "text", "", "name of the rank's host"),
        ATTEMPT,
        Column("phase", "text", "", "launch, meet, import, join, data, build, evict, load, first_step"),
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("duration_s", "number", "s", ""),
        Column("read_bytes", "count", "bytes", "of a load: fetched from storage by this rank, as the kernel counts"),
        Column("bytes", "count", "bytes", "of a load: of the files that this rank read"),
    ),
)  # fmt: skip


def phases(runs: Sequence[Run]) -> pd.DataFrame:
    return PHASES.rows(rank_rows(runs, _phases))


def _phases(run: Run, part: RankRun) -> Iterator[Row]:
    for attempt, event in part.trace.phases:
        yield {
            "node": part.node,
            "attempt": attempt,
            "phase": event.name,
            "start_ns": event.start_ns,
            "duration_s": duration_s(event),
            "read_bytes": event.read_bytes,
            "bytes": event.bytes,
        }
