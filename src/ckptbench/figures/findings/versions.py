"""Sentences on the table `consistency`: whether the versions of each strategy are the states of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.grouping import groups
from ckptbench.answer.labels import describe
from ckptbench.figures.findings.words import bounded, every, listed
from ckptbench.networks.tensor_groups import GROUPS


def sentences(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """One for each strategy of which versions were compared."""
    compared = tables["consistency"][tables["consistency"]["versions_compared"] > 0]
    said = [
        _of_strategy(describe("strategy", key["strategy"]), rows)
        for key, rows in groups(compared, ["strategy"])
    ]
    return bounded(said, "consistency")


def _of_strategy(strategy: str, runs: pd.DataFrame) -> str:
    number, torn = (int(runs[column].sum()) for column in ("versions_compared", "torn"))
    if not torn:
        verb = "is" if number == 1 else "are"
        which = every(number, "version").replace("version", "compared version", 1)
        return (
            f"Strategy {strategy}: {which} {verb} bit for bit the state of the step that it claims."
        )
    return (
        f"Strategy {strategy}: {torn} of {number} compared versions {'is' if torn == 1 else 'are'} torn, with tensors of"
        f" another step than the one claimed: {listed(list(_torn(runs[runs['torn'] > 0])))}."
    )


def _torn(runs: pd.DataFrame) -> Iterator[str]:
    """`PyTorch (weights and statistics, first in step 6: model/fc.bias)`."""
    for key, rows in groups(runs, ["framework"]):
        torn = {group for names in rows["torn_groups"] for group in names.split(", ")}
        parts = listed([describe("group", group) for group in GROUPS if group in torn])
        first = rows.sort_values("first_torn_step", kind="stable").iloc[0]
        tensor = first["torn_names"].split(", ")[0]
        framework = describe("framework", key["framework"])
        yield f"{framework} ({parts}, first at step {first['first_torn_step']}: {tensor})"
