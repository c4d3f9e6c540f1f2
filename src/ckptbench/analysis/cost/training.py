"""The table `training`: loss and accuracy by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ckptbench.analysis.tables.columns import EPOCH, REPEAT, RUN, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.networks.models import READ_TOKENS

TRAINING = Table(
    "training",
    "One row a run and epoch, resumed runs included.",
    ("run", "epoch"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("attempts", "integer", "1", "1: never interrupted"),
        EPOCH,
        Column("training_loss", "number", "1", "cross-entropy before each update, mean over steps and ranks"),
        Column("test_loss", "number", "1", "cross-entropy after the epoch, mean over the test set"),
        Column("test_accuracy", "number", "1", "share of the test set, of text of its tokens, that is predicted right"),
        Column("test_perplexity", "number", "1", "exp(test_loss), of models that learn from tokens"),
    ),
)  # fmt: skip


def training(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `epochs`, `steps` and `evaluations`."""
    by_epoch = ["run", "epoch"]
    # Of each step first the mean over its ranks: where ranks were lost, later steps have fewer.
    steps = tables["steps"].groupby([*by_epoch, "step"])["loss"].mean().groupby(by_epoch).mean()
    evaluated = tables["evaluations"].groupby(by_epoch)
    tests = evaluated[["samples", "loss_sum", "correct"]].sum()
    # pandas' sums leave NaN out: the loss of a run that diverged would look like a good one.
    loss = steps.where(_all_known(tables["steps"], "loss"))
    tests["loss_sum"] = tests["loss_sum"].where(_all_known(tables["evaluations"], "loss_sum"))
    rows = (
        pd.concat([tables[name][by_epoch] for name in ("epochs", "steps", "evaluations")])
        .drop_duplicates()
        .merge(tables["runs"][["run", *SETUP, "repeat", "attempts"]], on="run")
        .join(loss.rename("training_loss"), on=by_epoch)
        .join(tests, on=by_epoch)
    )
    test_loss = rows["loss_sum"] / rows["samples"]
    return TRAINING.frame(
        rows.assign(
            test_loss=test_loss,
            test_accuracy=rows["correct"] / rows["samples"],
            test_perplexity=np.exp(test_loss.where(rows["model"].isin(READ_TOKENS))),
        )
    )


def _all_known(frame: pd.DataFrame, column: str) -> pd.Series:
    """By run and epoch, whether no value of the column is NaN."""
    known: pd.Series = frame[column].notna().groupby([frame["run"], frame["epoch"]]).all()
    return known
