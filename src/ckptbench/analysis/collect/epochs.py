"""The tables `epochs` and `evaluations`: how long each epoch took, and how good the network was after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pandas as pd

from ckptbench.analysis.collect.rank_events import duration_s, rank_rows
from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import EPOCH, RANK, RUN
from ckptbench.analysis.tables.schema import Column, Row, Table

EPOCHS = Table(
    "epochs",
    "One row a run, rank and epoch.",
    ("run", "rank", "epoch"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column(
            "duration_s",
            "number",
            "s",
            "steps and checkpoints, without evaluation and pauses for a proof",
        ),
        Column("warmup_s", "number", "s", "the part up to the end of the last warm-up step"),
        Column("samples", "integer", "samples", "that the rank trained on"),
    ),
)


EVALUATIONS = Table(
    "evaluations",
    "One row a run, rank and evaluation: the rank's shard of the test set.",
    ("run", "rank", "epoch"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("start_ns", "integer", "ns", "monotonic clock of the rank's host"),
        Column("duration_s", "number", "s", "outside of every training time"),
        Column("samples", "integer", "samples", "of the shard"),
        Column("loss_sum", "number", "1", "sum of the cross-entropies of the shard"),
        Column("correct", "integer", "samples", "that were classified correctly"),
    ),
)


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
