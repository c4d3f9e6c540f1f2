"""The table `lineage`: which samples the final model of a struck run has seen, and what was computed in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.collect.course import StepExecution
from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.tables.columns import RUN
from ckptbench.analysis.tables.schema import Column, Table

LINEAGE = Table(
    "lineage",
    "One row per run with failures. A sample counts once per epoch; an epoch consists of whole global batches.",
    ("run",),
    (
        RUN,
        Column("steps", "integer", "1", "of the whole run"),
        Column("planned_samples", "integer", "samples", "seen by the final model if nothing failed"),
        Column("seen_once", "integer", "samples", "of these, seen once"),
        Column("seen_twice", "integer", "samples", "seen more than once"),
        Column("never_seen", "integer", "samples", "not seen"),
        Column("undone_samples", "integer", "samples", "computed in steps that were undone"),
        Column("mean_ranks", "number", "1", "ranks per step of the final state"),
    ),
)  # fmt: skip


def lineage(runs: Sequence[Run]) -> pd.DataFrame:
    return LINEAGE.rows(_row(run, run.executions) for run in runs if run.executions is not None)


def _row(run: Run, executions: Sequence[StepExecution]) -> dict[str, Any]:
    kept = [execution.members for execution in executions if execution.kept]
    undone = [execution.members for execution in executions if not execution.kept]
    global_batch = run.cell.ranks * run.cell.batch_size
    # Memberships are few, steps are many.
    times = {members: members.times_read(global_batch) for members in set(kept)}
    ranks = [len(members.ranks) for members in kept]
    return {
        "run": run.cell.id,
        "steps": len(kept),
        "planned_samples": len(kept) * global_batch,
        "seen_once": sum(int((times[members] == 1).sum()) for members in kept),
        "seen_twice": sum(int((times[members] > 1).sum()) for members in kept),
        "never_seen": sum(int((times[members] == 0).sum()) for members in kept),
        "undone_samples": sum(sum(members.samples) for members in undone),
        "mean_ranks": float(np.mean(ranks)),
    }
