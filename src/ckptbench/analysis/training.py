"""The table `training`: loss and accuracy by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.derived import TRAINING
from ckptbench.analysis.schema import SETUP


def training(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `epochs`, `steps` and `evaluations`."""
    by_epoch = ["run", "epoch"]
    loss = tables["steps"].groupby(by_epoch)["loss"].mean().rename("training_loss")
    tests = tables["evaluations"].groupby(by_epoch)[["samples", "loss_sum", "correct"]].sum()
    rows = (
        tables["epochs"][by_epoch]
        .drop_duplicates()
        .merge(tables["runs"][["run", *SETUP, "repeat", "attempts"]], on="run")
        .join(loss, on=by_epoch)
        .join(tests, on=by_epoch)
    )
    return TRAINING.frame(
        rows.assign(
            test_loss=rows["loss_sum"] / rows["samples"],
            test_accuracy=rows["correct"] / rows["samples"],
        )
    )
