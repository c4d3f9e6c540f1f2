"""The tables with a row for each event of a rank: `epochs`, `evaluations`, `phases` and `memory`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import pandas as pd

from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import ATTEMPT, EPOCH, RANK, RUN, START_NS
from ckptbench.analysis.tables.schema import Column, Row, Table

EPOCHS = Table(
    "epochs",
    "One row per run, rank and epoch.",
    ("run", "rank", "epoch"),
    (
        RUN,
        RANK,
        EPOCH,
        START_NS,
        Column(
            "duration_s",
            "number",
            "s",
            "steps and checkpoints, without evaluation and pauses for the resume proof",
        ),
        Column("warmup_s", "number", "s", "the part up to the end of the last warm-up step"),
        Column("samples", "integer", "samples", "on which the rank trained"),
    ),
)

EVALUATIONS = Table(
    "evaluations",
    "One row per run, rank and evaluation: the rank's shard of the test set.",
    ("run", "rank", "epoch"),
    (
        RUN,
        RANK,
        EPOCH,
        START_NS,
        Column("duration_s", "number", "s", "not part of any training time"),
        Column("samples", "integer", "samples", "of the shard"),
        Column("loss_sum", "number", "1", "sum of the cross-entropies of the shard"),
        Column("correct", "integer", "samples", "classified correctly"),
    ),
)

PHASES = Table(
    "phases",
    "One row per run, rank, attempt and phase of its start.",
    ("run", "rank", "attempt", "start_ns"),
    (
        RUN,
        RANK,
        Column("node", "text", "", "name of the rank's host"),
        ATTEMPT,
        Column("phase", "text", "", "as in docs/run-folder.md"),
        START_NS,
        Column("duration_s", "number", "s", ""),
        Column("read_bytes", "count", "bytes", "as in docs/run-folder.md"),
        Column("bytes", "count", "bytes", "as in docs/run-folder.md"),
    ),
)  # fmt: skip

MEMORY = Table(
    "memory",
    "One row per run, rank and sample of memory.",
    ("run", "rank", "attempt", "at_ns"),
    (
        RUN,
        RANK,
        ATTEMPT,
        Column("when", "text", "", "as in docs/run-folder.md"),
        Column("step", "integer", "1", "completed steps of the whole run"),
        Column("at_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("bytes", "integer", "bytes", "as in docs/run-folder.md"),
        Column("shared_bytes", "integer", "bytes", "as in docs/run-folder.md"),
        Column("peak_bytes", "integer", "bytes", "as in docs/run-folder.md"),
        Column("threads", "integer", "1", "as in docs/run-folder.md"),
        Column("processes", "integer", "1", "as in docs/run-folder.md"),
        Column("gpu_peak_bytes", "count", "bytes", "as in docs/run-folder.md"),
    ),
)  # fmt: skip


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


def epochs(runs: Sequence[Run]) -> pd.DataFrame:
    return EPOCHS.rows(rank_rows(runs, _epochs))


def _epochs(run: Run, part: RankRun) -> Iterator[Row]:
    steps = part.steps
    warmup_end_ns = steps.end_ns[: run.warmup_steps]
    for epoch, event in part.trace.epochs.items():
        own = warmup_end_ns[steps.epoch[: run.warmup_steps] == epoch]
        warmup_end = int(own[-1]) if own.size else event.start_ns
        yield {
            "epoch": epoch,
            "start_ns": event.start_ns,
            "samples": event.samples,
            "duration_s": _trained_s(part, event.start_ns, event.end_ns),
            "warmup_s": _trained_s(part, event.start_ns, warmup_end),
        }


def _trained_s(part: RankRun, start_ns: int, end_ns: int) -> float:
    """Time between two moments, without the pauses between them."""
    pauses = [pause for pause in part.trace.pauses if start_ns <= pause.start_ns < end_ns]
    return (end_ns - start_ns) / 1e9 - sum(map(duration_s, pauses))


def evaluations(runs: Sequence[Run]) -> pd.DataFrame:
    return EVALUATIONS.rows(rank_rows(runs, _evaluations))


def _evaluations(run: Run, part: RankRun) -> Iterator[Row]:
    for event in part.trace.evaluations.values():
        yield {**dataclasses.asdict(event), "duration_s": duration_s(event)}


def phases(runs: Sequence[Run]) -> pd.DataFrame:
    return PHASES.rows(rank_rows(runs, _phases))


def _phases(run: Run, part: RankRun) -> Iterator[Row]:
    for attempt, event in part.trace.phases:
        own = {"node": part.node, "phase": event.name, "duration_s": duration_s(event)}
        yield {**dataclasses.asdict(event), **own, "attempt": attempt}


def memory(runs: Sequence[Run]) -> pd.DataFrame:
    return MEMORY.rows(rank_rows(runs, _samples))


def _samples(run: Run, part: RankRun) -> Iterator[Row]:
    for attempt, sample in part.trace.memory:
        yield {**dataclasses.asdict(sample), "attempt": attempt}
