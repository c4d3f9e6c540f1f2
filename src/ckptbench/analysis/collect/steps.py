"""The table `steps`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import EPOCH, RANK, RUN, START_NS
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.run.trace import Floats

STEPS = Table(
    "steps",
    "One row per run, rank and step; if repeated, the later attempt. Steps of an epoch cut short by a kill, and steps undone with a lost rank, are missing.",
    ("run", "rank", "step"),
    (
        RUN,
        RANK,
        EPOCH,
        Column("step", "integer", "1", "index in the whole run, from 0"),
        START_NS,
        Column("duration_s", "number", "s", "batch loading, forward, backward, averaging and update"),
        Column("wait_s", "number", "s", "from the end of the previous event to the start; NaN in a run that was resumed, or that lost or gained ranks"),
        Column("loss", "number", "1", "mean cross-entropy of the rank's batch before the update"),
        Column("warmup", "flag", "", "whether it is a warm-up step"),
    ),
)  # fmt: skip


def steps(runs: Sequence[Run]) -> pd.DataFrame:
    """Built from arrays, in the order of the table: a study has millions of steps."""
    parts = [(run, rank, part) for run in runs for rank, part in enumerate(run.ranks)]
    if not parts:
        return STEPS.rows([])
    lengths = [len(part.steps.index) for _, _, part in parts]

    def each(values: list[Any], dtype: type) -> NDArray[Any]:
        return np.repeat(np.array(values, dtype), lengths)

    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part.steps, name) for _, _, part in parts])

    return STEPS.sorted_frame(
        {
            "run": each([run.cell.id for run, _, _ in parts], object),
            "rank": each([rank for _, rank, _ in parts], int),
            "epoch": join("epoch"),
            "step": join("index"),
            "start_ns": join("start_ns"),
            "duration_s": (join("end_ns") - join("start_ns")) / 1e9,
            "wait_s": np.concatenate([_wait_s(run, part) for run, _, part in parts]),
            "loss": join("loss"),
            "warmup": join("index") < each([run.warmup_steps for run, _, _ in parts], int),
        }
    )


def _wait_s(run: Run, part: RankRun) -> Floats:
    """From the last thing that ended (or epoch that began) before each step to its start."""
    steps, trace = part.steps, part.trace
    if run.interrupted:
        return np.full(len(steps.index), np.nan)
    before = np.sort(
        np.concatenate(
            [
                steps.end_ns,
                np.array(
                    [each.save.end_ns for each in trace.checkpoints.values() if each.save], np.int64
                ),
                np.array([epoch.start_ns for epoch in trace.epochs.values()], np.int64),
                np.array([pause.end_ns for pause in trace.pauses], np.int64),
            ]
        )
    )
    last = np.searchsorted(before, steps.start_ns, side="right") - 1
    wait_s: Floats = (steps.start_ns - before[last]) / 1e9
    return wait_s
