"""The table `stall`: every checkpoint as its slowest rank felt it, and what the time went into."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.cost.times import timed
from ckptbench.analysis.tables.columns import (
    EPOCH,
    PLACE,
    REPEAT,
    RUN,
    SETUP,
    SETUP_COLUMNS,
    STEADY,
)
from ckptbench.analysis.tables.schema import Column, Table

STALL = Table(
    "stall",
    "One row a checkpoint of a run with valid timing: its slowest rank, and the parts as the writing rank saw"
    " them (of several, the slowest).",
    ("run", "step"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        EPOCH,
        Column("step", "integer", "1", "completed steps that the checkpoint holds"),
        PLACE,
        STEADY,
        Column("warmup", "flag", "", "whether it came before the end of the warm-up"),
        Column("stall_s", "number", "s", "the training loop was blocked, slowest rank"),
        Column("write_s", "number", "s", "until the framework's own write returned"),
        Column("sync_s", "number", "s", "from then until the files were on stable storage"),
        Column("checksum_s", "number", "s", "from then until their checksums, begun before, were known"),
        Column("commit_s", "number", "s", "from then until the commit record was on stable storage"),
        Column("wait_s", "number", "s", "the rest of the stall: ranks waiting for one another, and the next save for the removal; 0 where a save goes on after it"),
        Column("durable_s", "number", "s", "from the start until everything was on stable storage"),
        Column("retention_s", "number", "s", "removal of old versions, behind training: no part of the stall"),
        Column("bytes", "count", "bytes", "of all files of this version"),
    ),
)  # fmt: skip


PARTS = ["write_s", "sync_s", "checksum_s", "commit_s"]


def stall(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `checkpoints`."""
    checkpoints = tables["checkpoints"]
    slowest = checkpoints.groupby(["run", "step"], as_index=False)["stall_s"].max()
    slowest_writer = (
        checkpoints[checkpoints["writes"]]
        .sort_values("durable_s", kind="stable")
        .drop_duplicates(["run", "step"], keep="last")[
            ["run", "step", "epoch", "place", "steady", *PARTS, "durable_s", "retention_s"]
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
