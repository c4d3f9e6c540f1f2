"""The table `stall`: every checkpoint as its slowest rank felt it, and what the time went into."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.derived import STALL
from ckptbench.analysis.schema import SETUP
from ckptbench.analysis.times import timed

PARTS = ["write_s", "sync_s", "checksum_s", "commit_s", "retention_s"]


def stall(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `checkpoints`."""
    checkpoints = tables["checkpoints"]
    slowest = checkpoints.groupby(["run", "step"], as_index=False)["stall_s"].max()
    slowest_writer = (
        checkpoints[checkpoints["writes"]]
        .sort_values("durable_s", kind="stable")
        .drop_duplicates(["run", "step"], keep="last")[
            ["run", "step", "epoch", *PARTS, "durable_s"]
        ]
    )
    weights = checkpoints.groupby(["run", "step"], as_index=False)["bytes"].sum()
    rows = (
        timed(tables["runs"])[["run", *SETUP, "repeat", "warmup_steps"]]
        .merge(slowest, on="run")
        .merge(slowest_writer, on=["run", "step"])
        .merge(weights, on=["run", "step"])
    )
    return STALL.frame(
        rows.assign(
            warmup=rows["step"] < rows["warmup_steps"],
            wait_s=(rows["stall_s"] - rows[PARTS].sum(axis=1)).clip(lower=0.0),
        )
    )
