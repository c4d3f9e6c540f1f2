"""The table `outcome`: what training comes out of runs that failures struck, against undisturbed runs of the same seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.statistics import of_differences
from ckptbench.analysis.tables.columns import SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.grouping import groups, records, struck
from ckptbench.analysis.tables.schema import Column, Table, with_ends

QUANTITIES = {
    "training_loss": "training loss of the last epoch",
    "test_loss": "test loss after the last epoch",
    "test_accuracy": "test accuracy after the last epoch",
}
OUTCOME = Table(
    "outcome",
    "One row a setup that failures struck. Means are over its repeats. A difference is the struck run minus its undisturbed run; its interval is of these repeats alone.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("repeats", "integer", "1", "runs"),
        Column("paired_repeats", "integer", "1", "of these, repeats whose undisturbed run ran too"),
        Column("compared_repeats", "integer", "1", "of these, repeats whose bits were compared with that run's"),
        Column("bit_equal_repeats", "integer", "1", "of these, repeats with the same bits in every tensor"),
        Column(
            "kept", "verdict", "",
            "whether all compared repeats have the same bits or, where none was compared, the same losses and accuracy to the last digit",
        ),
        *(
            column
            for name, meaning in QUANTITIES.items()
            for column in with_ends(f"{name}_difference", "1", meaning)
        ),
    ),
)  # fmt: skip


def outcome(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `training` and `resume_proof`."""
    runs, training = tables["runs"], tables["training"]
    last = training.sort_values("epoch").drop_duplicates("run", keep="last").set_index("run")
    equal = tables["resume_proof"].set_index("run")["bit_equal"]
    return OUTCOME.rows(
        {**setup, **_of(group, last, equal)} for setup, group in groups(runs[struck(runs)], SETUP)
    )


def _of(group: pd.DataFrame, last: pd.DataFrame, equal: pd.Series[Any]) -> dict[str, Any]:
    pairs = [
        (run["run"], run["reference"]) for run in records(group) if run["reference"] in last.index
    ]
    differences = {
        name: np.array([last.loc[run, name] - last.loc[other, name] for run, other in pairs], float)
        for name in QUANTITIES
    }
    compared = [bool(equal[run]) for run, _ in pairs if run in equal.index]
    same = [
        all(_is_zero(own[place]) for own in differences.values()) for place in range(len(pairs))
    ]
    return {
        "repeats": len(group),
        "paired_repeats": len(pairs),
        "compared_repeats": len(compared),
        "bit_equal_repeats": sum(compared),
        "kept": all(compared or same) if pairs else None,
        **{
            column: value
            for name, each in differences.items()
            for column, value in of_differences(each).columns(f"{name}_difference").items()
        },
    }


def _is_zero(difference: float) -> bool:
    """Whether two runs have the same; also where neither was evaluated."""
    return difference == 0 or math.isnan(difference)
