"""The table `progress`: the steps of struck runs, and of the runs that they are compared with, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ckptbench.analysis.collect.course import Segment, segments
from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.tables.columns import RANK, RUN
from ckptbench.analysis.tables.schema import Column, Table

PROGRESS = Table(
    "progress",
    "One row a step of a run that failures struck, on rank 0 or a rank that went on, and of its undisturbed run. Steps that were done again are there twice.",
    ("run", "second", "rank"),
    (
        RUN,
        RANK,
        Column("second", "number", "s", "from the start of the run's first step to the end of this one, by the clock of its host"),
        Column("step", "integer", "1", "index in the whole run, from 0"),
        Column("loss", "number", "1", "mean cross-entropy of this rank's batch before the update"),
        Column("again", "flag", "", "whether the step had been done before"),
    ),
)  # fmt: skip


def progress(runs: Sequence[Run]) -> pd.DataFrame:
    struck = [run for run in runs if run.cell.is_struck]
    # Ranks have batches of their own, so the losses of two runs are alike only on the same rank.
    told: dict[str, set[int]] = {}
    for run in struck:
        told.setdefault(run.cell.reference.id, set()).add(run.segments[0].rank)
    parts = [
        *(_steps(run.cell.id, run.segments) for run in struck),
        *(
            _steps(run.cell.id, segments(run.traces, rank))
            for run in runs
            for rank in sorted(told.get(run.cell.id, ()))
        ),
    ]
    return PROGRESS.frame(pd.concat(parts)) if parts else PROGRESS.rows([])


def _steps(run: str, told: Sequence[Segment]) -> pd.DataFrame:
    done = [segment.steps() for segment in told]
    step, start_ns, end_ns, loss = (
        np.concatenate([getattr(steps, name) for steps in done])
        for name in ("index", "start_ns", "end_ns", "loss")
    )
    reached = np.maximum.accumulate(step)
    again = np.zeros(len(reached), bool)
    again[1:] = step[1:] <= reached[:-1]
    return pd.DataFrame(
        {
            "run": run,
            "rank": np.repeat([segment.rank for segment in told], [len(own.index) for own in done]),
            "second": (end_ns - start_ns[0]) / 1e9,
            "step": step,
            "loss": loss,
            "again": again,
        }
    )
