"""The table `stall`: every checkpoint as its slowest rank felt it, and what the time went into."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.cost.statistics import PerRepeat
from ckptbench.analysis.cost.times import with_valid_timing
from ckptbench.analysis.tables.columns import (
    EPOCH,
    HOLD_COLUMNS,
    LEVELS_REACHED,
    PLACE,
    REPEAT,
    RUN,
    SAVED_STEP,
    SETUP,
    SETUP_COLUMNS,
    STEADY,
    WRITING_COLUMNS,
)
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.levels import SHARED

STALL = Table(
    "stall",
    "One row per checkpoint of a run with valid timing, on its slowest rank; write, sync, checksum and commit on the slowest that writes. The parts of a stall add up to it.",
    ("run", "step"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        EPOCH,
        SAVED_STEP,
        PLACE,
        STEADY,
        LEVELS_REACHED,
        Column("warmup", "flag", "", "whether it began during the warm-up"),
        Column("blocking", "flag", "", "whether write, sync, checksum and commit are parts of the stall; if not, the capture is"),
        Column("stall_s", "number", "s", "as in `checkpoints`, on the rank with the longest sum of this and `save_hold_s`"),
        Column("capture_s", "number", "s", "part of the stall: the save call, if the strategy is not blocking; else 0"),
        *WRITING_COLUMNS,
        *HOLD_COLUMNS,
        Column("wait_s", "number", "s", "part of the stall: ranks waited for one another"),
        Column("durable_s", "number", "s", "from the start until the version was committed at its farthest level"),
        Column("bytes", "count", "bytes", "of all files of this version"),
    ),
)  # fmt: skip


WRITING = ["write_s", "sync_s", "checksum_s", "commit_s"]
"""Parts of a checkpoint. They are parts of its stall where training waits for the commit."""
HOLDS = ["update_hold_s", "removal_hold_s"]
PARTS = ["capture_s", *WRITING, "wait_s", *HOLDS]


def stall(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `checkpoints`."""
    checkpoints = tables["checkpoints"]
    slowest = of_slowest_rank(checkpoints)[
        ["run", "step", "stall_s", "save_s", "save_hold_s", *HOLDS]
    ]
    slowest_writer = (
        checkpoints[checkpoints["writes"]]
        .sort_values("durable_s", kind="stable")
        .drop_duplicates(["run", "step"], keep="last")[
            [
                "run",
                "step",
                "epoch",
                "place",
                "steady",
                "levels",
                *WRITING,
                "durable_s",
            ]
        ]
    )
    weights = checkpoints.groupby(["run", "step"], as_index=False)["bytes"].sum()
    rows = (
        with_valid_timing(tables["runs"])[["run", *SETUP, "repeat", "warmup_steps", "blocking"]]
        .merge(slowest, on="run")
        .merge(slowest_writer, on=["run", "step"])
        .merge(weights, on=["run", "step"])
    )
    blocking = rows["blocking"]
    waited_s = (rows["save_s"] - rows[WRITING].sum(axis=1)).clip(lower=0.0)
    return STALL.frame(
        rows.assign(
            warmup=rows["step"] < rows["warmup_steps"],
            capture_s=rows["save_s"].where(~blocking, 0.0),
            wait_s=waited_s.where(blocking, 0.0),
        )
    )


def steady_or_all(stall: pd.DataFrame) -> pd.DataFrame:
    """Of these rows of one setup, those of the steady state if each run has one; otherwise all."""
    steady = stall[stall["steady"]]
    return steady if set(steady["run"]) == set(stall["run"]) else stall


def mean_of_runs(checkpoints: pd.DataFrame, column: str) -> PerRepeat:
    """A time of one checkpoint: the mean of each run's checkpoints, and the mean of these. NaN of no rows of this table.

    Means, as a training pays all of its checkpoints, the few long ones too.
    """
    each = checkpoints[column].groupby(checkpoints["run"]).mean().to_numpy()
    return PerRepeat.mean(each) if len(each) else PerRepeat(math.nan, each)


def blocked_s(checkpoints: pd.DataFrame) -> pd.Series[float]:
    """The stall of each checkpoint and the time in which the next save waited for it, which depends on the interval."""
    return checkpoints["stall_s"] + checkpoints["save_hold_s"]


def of_slowest_rank(checkpoints: pd.DataFrame) -> pd.DataFrame:
    """Of the table `checkpoints` one row a checkpoint: that of the rank that was blocked the longest."""
    by_time = checkpoints.iloc[blocked_s(checkpoints).argsort(kind="stable")]
    return by_time.drop_duplicates(["run", "step"], keep="last")


def reached_shared(checkpoints: pd.DataFrame) -> pd.DataFrame:
    """Those of these rows of a table with the column `levels` whose version lies at the shared level: on stable storage."""
    lies_there = checkpoints["levels"].map(lambda levels: SHARED in levels.split("+"))
    return checkpoints[lies_there.astype(bool)]


def parts_of_stall(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns PARTS of rows of this table, 0 where a part is behind training. They add up to `stall_s`."""
    parts = rows[PARTS].copy()
    parts.loc[~rows["blocking"], WRITING] = 0.0
    return parts
