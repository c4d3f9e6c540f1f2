"""The table `sizes`: what a checkpoint weighs, against the bytes that the state must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ckptbench.analysis.derived import SIZES, SIZES_KEY
from ckptbench.analysis.grouping import groups
from ckptbench.cells import WHOLE

WEIGHTS = ["files", "bytes", "main_bytes", "rank_bytes"]
STATE = ["state_model_bytes", "state_optimizer_bytes", "state_rest_bytes"]


def sizes(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs` and `checkpoints`; resumed runs count too, as a size is no timing.

    Not those made for the resume proof: a setup's number of versions would depend on what was proven beside it.
    """
    written = tables["checkpoints"][tables["checkpoints"]["writes"]]
    # Where several ranks write, a version is what they wrote together.
    versions = written.groupby(["run", "step"], as_index=False)[WEIGHTS].sum()
    whole = tables["runs"][tables["runs"]["history"] == WHOLE]
    known = versions.merge(whole[["run", *SIZES_KEY, *STATE]], on="run")
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
        "versions": len(versions),
        "bytes_min": smallest,
        "bytes_max": largest,
        "constant": smallest == largest,
        "ratio": weights["bytes"] / state.sum(),
        "main_ratio": weights["main_bytes"] / state[STATE[:2]].sum(),
    }
