"""The table `progress`: the steps of struck runs, and of the runs that they are compared with, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.tables.columns import RUN
from ckptbench.analysis.tables.schema import Column, Table

PROGRESS = Table(
    "progress",
    "One row a step of a run that failures struck, or of the undisturbed run of its seed, as rank 0 did it, or where rank 0 was lost a"
    " rank that went on. Steps that were done again are there twice.",
    ("run", "second"),
    (
        RUN,
        Column("second", "number", "s", "from the start of the run's first step to the end of this one, by the clock of its host"),
        Column("step", "integer", "1", "index in the whole run, from 0"),
        Column("loss", "number", "1", "mean cross-entropy of this rank's batch before the update"),
        Column("again", "flag", "", "whether the step had been done before"),
    ),
)  # fmt: skip


def progress(runs: Sequence[Run]) -> pd.DataFrame:
    struck = [run for run in runs if run.cell.is_struck]
    references = {run.cell.reference.id for run in struck}
    shown = [*struck, *(run for run in runs if run.cell.id in references)]
    parts = [_steps(run) for run in shown]
    return PROGRESS.frame(pd.concat(parts)) if parts else PROGRESS.rows([])


def _steps(run: Run) -> pd.DataFrame:
    done = [stretch.steps() for stretch in run.stretches]
    step, start_ns, end_ns, loss = (
        np.concatenate([getattr(steps, name) for steps in done])
        for name in ("index", "start_ns", "end_ns", "loss")
    )
    reached = np.maximum.accumulate(step)
    again = np.zeros(len(reached), bool)
    again[1:] = step[1:] <= reached[:-1]
    return pd.DataFrame(
        {
            "run": run.cell.id,
            "second": (end_ns - start_ns[0]) / 1e9,
            "step": step,
            "loss": loss,
            "again": again,
        }
    )
