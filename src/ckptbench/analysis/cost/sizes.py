"""The table `sizes`: what a checkpoint weighs, against the bytes that the state must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ckptbench.analysis.cost.stall import reached_shared
from ckptbench.analysis.tables.columns import SETUP_COLUMNS, STATE_COLUMNS
from ckptbench.analysis.tables.grouping import groups
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.registry import WHOLE

SIZES_KEY = ("framework", "model", "dataset", "ranks", "optimizer", "strategy", "strategy_name", "strategy_options", "format")  # fmt: skip


SIZES = Table(
    "sizes",
    "One row per framework, model, dataset, ranks, optimizer, strategy and format, over all versions at the level `shared`. Files and bytes are medians.",
    SIZES_KEY,
    (
        *(column for column in SETUP_COLUMNS if column.name in SIZES_KEY),
        Column("versions", "integer", "1", "number of versions measured"),
        Column("files", "number", "1", "of a version"),
        Column("bytes", "number", "bytes", "of a version on storage"),
        Column("bytes_min", "integer", "bytes", "of the smallest version"),
        Column("bytes_max", "integer", "bytes", "of the largest version"),
        Column("constant", "flag", "", "whether all versions have the same size"),
        Column("main_bytes", "number", "bytes", "of the files in the framework's format"),
        Column("rank_bytes", "number", "bytes", "of the files with each rank's local state"),
        *STATE_COLUMNS,
        Column("ratio", "number", "1", "bytes / minimum size of the state"),
    ),
)  # fmt: skip


WEIGHTS = ["files", "bytes", "main_bytes", "rank_bytes"]
SECOND = "state_second_moments_bytes"
STATE = ["state_model_bytes", "state_optimizer_bytes", "state_rest_bytes"]


def sizes(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `checkpoints`; resumed runs count too, as a size is no timing.

    Not those made for the resume proof: a setup's number of versions would depend on what was proven beside it.
    Nor versions at local tiers alone: on several nodes each holds a part.
    """
    checkpoints = tables["checkpoints"]
    written = reached_shared(checkpoints[checkpoints["writes"]])
    # Where several ranks write, a version is what they wrote together.
    versions = written.groupby(["run", "step"], as_index=False)[WEIGHTS].sum()
    whole = tables["runs"][tables["runs"]["history"] == WHOLE]
    known = versions.merge(whole[["run", *SIZES_KEY, *STATE, SECOND]], on="run")
    return SIZES.rows(
        _row(key, versions_of_key) for key, versions_of_key in groups(known, SIZES_KEY)
    )


def _row(key: dict[str, Any], versions: pd.DataFrame) -> dict[str, Any]:
    weights, state = versions[WEIGHTS].median(), versions[STATE].iloc[0]
    smallest, largest = versions["bytes"].min(), versions["bytes"].max()
    return {
        **key,
        **weights,
        **state,
        SECOND: versions[SECOND].iloc[0],
        "versions": len(versions),
        "bytes_min": smallest,
        "bytes_max": largest,
        "constant": smallest == largest,
        "ratio": weights["bytes"] / state.sum(),
    }
