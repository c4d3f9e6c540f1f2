"""The table `aftermath`: how the training of a struck run went on, beside the undisturbed run of the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ckptbench.analysis.tables.columns import REPEAT, RUN, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.analysis.tables.schema import Column, Table

UNDISTURBED, STRUCK, FAILURE = "undisturbed", "struck", "failure"
AFTERMATH = Table(
    "aftermath",
    "One row a step or failure, of each setup's run with the most failures, and of its undisturbed run.",
    (*SETUP, "second", "what"),
    (
        *SETUP_COLUMNS,
        RUN,
        REPEAT,
        Column("steps_per_epoch", "integer", "1", "of the run"),
        Column("what", "text", "", "`undisturbed`: a step of the undisturbed run; `struck`: of the struck one; `failure`"),
        Column("second", "number", "s", "since the first step of its run began"),
        Column("step", "count", "1", "index in the whole run, from 0"),
        Column("loss", "number", "1", "mean cross-entropy of one rank's batch before the update"),
        Column("again", "verdict", "", "whether the step had been done before"),
    ),
)  # fmt: skip


def aftermath(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `progress` and `failures`."""
    runs, failures = tables["runs"], tables["failures"]
    numbers = failures["run"].value_counts()
    struck = runs[runs["run"].isin(numbers.index)]
    parts = [
        part
        for _, group in groups(struck, SETUP)
        for part in _of(max(records(group), key=lambda row: numbers[row["run"]]), tables)
    ]
    return AFTERMATH.frame(pd.concat(parts)) if parts else AFTERMATH.rows([])


def _of(run: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> Iterator[pd.DataFrame]:
    progress, failures = tables["progress"], tables["failures"]
    shared = {name: run[name] for name in (*SETUP, "run", "repeat", "steps_per_epoch")}
    steps = ["second", "step", "loss", "again"]
    struck = progress[progress["run"] == run["run"]]
    whole = progress[progress["run"] == run["reference"]]
    same = whole[whole["rank"].isin(struck["rank"].iloc[:1])]
    for what, own in ((UNDISTURBED, same), (STRUCK, struck)):
        if len(own):
            yield (
                own[steps].astype({"step": "Int64", "again": "boolean"}).assign(**shared, what=what)
            )
    strikes = failures.loc[failures["run"] == run["run"], ["second"]]
    missing = {"step": pd.NA, "loss": float("nan"), "again": pd.NA}
    yield strikes.assign(**shared, **missing, what=FAILURE).astype(
        {"step": "Int64", "again": "boolean"}
    )
