"""The table `outcome`: what training comes out of runs that failures struck, against undisturbed runs of the same seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ckptbench.analysis.tables.columns import SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.grouping import groups, struck
from ckptbench.analysis.tables.schema import Column, Table

QUANTITIES = {
    "training_loss": "training loss of the last epoch",
    "test_loss": "test loss after the last epoch",
    "test_accuracy": "test accuracy after the last epoch",
}
OUTCOME = Table(
    "outcome",
    "One row a setup that failures struck. Differences are means over its repeats: the struck run minus its undisturbed run.",
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
        *(Column(f"{name}_difference", "number", "1", meaning) for name, meaning in QUANTITIES.items()),
    ),
)  # fmt: skip


def outcome(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `training` and `resume_proof`."""
    runs, curves = tables["runs"], tables["training"]
    last = curves.sort_values("epoch").drop_duplicates("run", keep="last").set_index("run")
    equal = tables["resume_proof"].set_index("run")["bit_equal"]
    own = runs[struck(runs)]
    differences = {
        f"{name}_difference": own["run"].map(last[name]) - own["reference"].map(last[name])
        for name in QUANTITIES
    }
    known = own.assign(
        **differences,
        paired=own["reference"].isin(last.index),
        bit_equal=own["run"].map(equal).astype("boolean"),
    )
    return OUTCOME.rows({**setup, **_of(group)} for setup, group in groups(known, SETUP))


def _of(group: pd.DataFrame) -> dict[str, Any]:
    pairs = group[group["paired"]]
    compared = pairs["bit_equal"].dropna()
    differences = pairs[[f"{name}_difference" for name in QUANTITIES]]
    # A difference is missing where neither run was evaluated.
    same = (differences.isna() | (differences == 0)).all(axis=None)
    return {
        "repeats": len(group),
        "paired_repeats": len(pairs),
        "compared_repeats": len(compared),
        "bit_equal_repeats": compared.sum(),
        "kept": None if pairs.empty else compared.all() if len(compared) else same,
        **differences.mean(),
    }
