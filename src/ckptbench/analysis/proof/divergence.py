"""The table `divergence`: which parts of the state part from the reference's, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.against import compared_digests
from ckptbench.analysis.derived_proof import DIVERGENCE
from ckptbench.analysis.schema import SETUP


def divergence(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `digests`."""
    compared = compared_digests(tables)
    after_epochs = compared[compared["when"] == "epoch"]
    by_group = after_epochs.groupby(["run", "group", "epoch"])["different"]
    counts = by_group.agg(tensors="size", different="sum").reset_index()
    rows = tables["runs"][["run", *SETUP, "repeat"]].merge(counts, on="run")
    return DIVERGENCE.frame(rows.assign(share=rows["different"] / rows["tensors"]))
