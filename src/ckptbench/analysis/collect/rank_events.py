"""Rows of tables from what each rank of each run recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.schema import Row


def rank_rows(runs: Iterable[Run], rows: Callable[[Run, RankRun], Iterator[Row]]) -> Iterator[Row]:
    """The rows that `rows` gives of every rank, with the columns `run` and `rank`."""
    for run in runs:
        for rank, part in enumerate(run.ranks):
            for row in rows(run, part):
                yield {"run": run.cell.id, "rank": rank, **row}


class Lasting(Protocol):
    """An event that has a beginning and an end."""

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


def duration_s(event: Lasting) -> float:
    return (event.end_ns - event.start_ns) / 1e9
