"""The table `divergence`: which parts of the state part from the reference's, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.proof.against import compared_digests
from ckptbench.analysis.tables.columns import EPOCH, GROUP, REPEAT, RUN, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.schema import Column, Table

DIVERGENCE = Table(
    "divergence",
    "One row a run of `resume_proof`, group of tensors and epoch: how many digests differ from the reference's.",
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


def divergence(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `digests`."""
    compared = compared_digests(tables)
    after_epochs = compared[compared["when"] == "epoch"]
    by_group = after_epochs.groupby(["run", "group", "epoch"])["different"]
    counts = by_group.agg(tensors="size", different="sum").reset_index()
    rows = tables["runs"][["run", *SETUP, "repeat"]].merge(counts, on="run")
    return DIVERGENCE.frame(rows.assign(share=rows["different"] / rows["tensors"]))
