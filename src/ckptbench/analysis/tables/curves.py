"""Loss and accuracy by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd


def curves(tables: Mapping[str, pd.DataFrame], runs: Iterable[str]) -> pd.DataFrame:
    """A row for each of these runs and each epoch, from the tables `steps`, `epochs` and `evaluations`.

    Columns: `run`, `epoch`, `training_loss` (before each update, mean over steps and ranks), `test_loss` and `test_accuracy` (after the
    epoch, over the test set). They are NaN where any loss is, or nothing was evaluated.
    """
    by_epoch = ["run", "epoch"]
    wanted = set(runs)
    steps, epochs, evaluations = (
        tables[name][tables[name]["run"].isin(wanted)]
        for name in ("steps", "epochs", "evaluations")
    )
    # Of each step first the mean over its ranks: where ranks were lost, later steps have fewer.
    loss = steps.groupby([*by_epoch, "step"])["loss"].mean().groupby(by_epoch).mean()
    tests = evaluations.groupby(by_epoch)[["samples", "loss_sum", "correct"]].sum()
    # pandas' sums leave NaN out: the loss of a run that diverged would look like a good one.
    loss = loss.where(_all_known(steps, "loss"))
    tests["loss_sum"] = tests["loss_sum"].where(_all_known(evaluations, "loss_sum"))
    rows = (
        pd.concat([frame[by_epoch] for frame in (steps, epochs, evaluations)])
        .drop_duplicates()
        .sort_values(by_epoch, ignore_index=True)
        .join(loss.rename("training_loss"), on=by_epoch)
        .join(tests, on=by_epoch)
    )
    return rows[[*by_epoch, "training_loss"]].assign(
        test_loss=rows["loss_sum"] / rows["samples"],
        test_accuracy=rows["correct"] / rows["samples"],
    )


def _all_known(frame: pd.DataFrame, column: str) -> pd.Series:
    """By run and epoch, whether no value of the column is NaN."""
    known: pd.Series = frame[column].notna().groupby([frame["run"], frame["epoch"]]).all()
    return known
