"""The table `spans`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from ckptbench.analysis.collect.rank_events import rank_rows
from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import (
    LEVEL,
    RANK,
    RUN,
    SAVED_STEP,
    SPAN_KIND,
    START_NS,
    WHY,
)
from ckptbench.analysis.tables.schema import Column, Row, Table
from ckptbench.matrix.levels import LEVELS
from ckptbench.runs.events import Durable, Save, Written
from ckptbench.runs.trace import Checkpoint

SPANS = Table(
    "spans",
    "One row a run, rank and part of a checkpoint. Parts may overlap.",
    ("run", "rank", "step", "start_ns", "end_ns", "kind", "level"),
    (
        RUN,
        RANK,
        SAVED_STEP,
        SPAN_KIND,
        WHY,
        LEVEL,
        START_NS,
        Column("end_ns", "integer", "ns", "the same clock"),
    ),
)

UNNAMED: Row = {"why": "", "level": ""}


def spans(runs: Sequence[Run]) -> pd.DataFrame:
    return SPANS.rows(rank_rows(runs, _spans))


def _spans(run: Run, part: RankRun) -> Iterator[Row]:
    for step, checkpoint in part.trace.checkpoints.items():
        if checkpoint.save is not None:  # else the attempt was killed in it
            for span in _of_checkpoint(checkpoint, checkpoint.save):
                yield {**UNNAMED, "step": step, **span}


def _of_checkpoint(checkpoint: Checkpoint, save: Save) -> Iterator[Row]:
    yield _lasting("save", save.start_ns, save.end_ns)
    for hold in checkpoint.holds:
        yield {**_lasting("hold", hold.start_ns, hold.end_ns), "why": hold.why}
    if checkpoint.captured is not None:
        yield _lasting("capture", save.start_ns, checkpoint.captured.at_ns)
    begun_ns, free_ns = save.start_ns, save.start_ns
    for level in sorted(checkpoint.written, key=LEVELS.index):
        written, durable = checkpoint.written[level], checkpoint.durable.get(level)
        for span in _of_level(begun_ns, written, free_ns, durable):
            yield {**span, "level": level}
        # One level is written, and committed, after the other.
        begun_ns = written.at_ns
        free_ns = durable.committed_ns if durable is not None else free_ns
    if checkpoint.retained is not None:
        yield _lasting("removal", checkpoint.retained.start_ns, checkpoint.retained.end_ns)


def _of_level(
    begun_ns: int, written: Written, free_ns: int, durable: Durable | None
) -> Iterator[Row]:
    """`begun_ns` is the end of the write at the local tier, `free_ns` that of the commit there."""
    yield _lasting("write", begun_ns, written.at_ns)
    if durable is not None:
        yield _lasting("sync", max(written.at_ns, free_ns), durable.synced_ns)
        yield _lasting("checksum", durable.synced_ns, durable.checked_ns)
        yield _lasting("commit", durable.checked_ns, durable.committed_ns)


def _lasting(kind: str, start_ns: int, end_ns: int) -> Row:
    return {"kind": kind, "start_ns": start_ns, "end_ns": end_ns}
