"""Runs of the resume proof beside their references, digest by digest, and the table `divergence`."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.tables.columns import EPOCH, GROUP, REPEAT, RUN, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.grouping import struck
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.registry import KILLED, WHOLE

DIVERGENCE = Table(
    "divergence",
    "One row per run of `resume_proof`, group of tensors and epoch: how many digests differ from the reference's.",
    ("run", "group", "epoch"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        GROUP,
        EPOCH,
        Column("tensors", "integer", "1", "digests compared after the epoch, over all ranks"),
        Column("different", "integer", "1", "of these, those that differ"),
        Column("share", "number", "1", "different / tensors"),
    ),
)

MOMENT = ["run", "rank", "when", "epoch", "tensor"]
RANK = ["run", "rank"]
THERE = [*RANK, "when", "epoch"]
COMPARED = ("epoch", "end")


def divergence(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `digests`."""
    compared = compared_digests(tables)
    after_epochs = compared[compared["when"] == "epoch"]
    by_group = after_epochs.groupby(["run", "group", "epoch"])["different"]
    counts = by_group.agg(tensors="size", different="sum").reset_index()
    rows = tables["runs"][["run", *SETUP, "repeat"]].merge(counts, on="run")
    return DIVERGENCE.frame(rows.assign(share=rows["different"] / rows["tensors"]))


def proven(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The rows of the table `runs` that have a reference, where both recorded a proof.

    A run that was to be left alone, and was requeued or resumed all the same, is neither a reference nor noise.
    """
    runs = tables["runs"]
    recorded = tables["digests"]["run"].unique()
    as_planned = struck(runs) | runs["history"].isin(KILLED) | (runs["attempts"] == 1)
    whole = runs.loc[as_planned & (runs["history"] == WHOLE), "run"]
    return runs[
        as_planned
        & (runs["history"] != WHOLE)
        & runs["run"].isin(recorded)
        & runs["reference"].isin(whole)
        & runs["reference"].isin(recorded)
    ]


def compared_digests(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Of every run in `proven` all digests after an epoch and at the end, with the columns of MOMENT, `group`, and
    `different`: whether the reference's is another, or there is none.

    Of a run that went on without a rank, the ranks that were there at the end are compared, and each only from when it was there.
    """
    pairs = proven(tables)[["run", "reference"]]
    digests = tables["digests"][tables["digests"]["when"].isin(COMPARED)]
    # Sorted by attempt: what the last attempt at an epoch gave is what the run kept.
    kept = digests.drop_duplicates(MOMENT, keep="last")[[*MOMENT, "group", "digest"]]
    ended = kept.loc[kept["when"] == "end", RANK].drop_duplicates()
    own = pairs[["run"]].merge(kept, on="run").merge(ended, on=RANK)
    expected = pairs.merge(kept.rename(columns={"run": "reference"}), on="reference")
    expected = expected.merge(own[THERE].drop_duplicates(), on=THERE)
    both = own.merge(
        expected.drop(columns="reference"),
        on=[*MOMENT, "group"],
        how="outer",
        suffixes=("", "_expected"),
    )
    return both.assign(different=both["digest"] != both["digest_expected"]).drop(
        columns=["digest", "digest_expected"]
    )
