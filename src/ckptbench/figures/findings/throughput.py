"""Sentences on the table `scaling`: what more ranks give, without checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.answer.labels import counted
from ckptbench.answer.setups import SYSTEM, in_words, ordered, with_hardware
from ckptbench.figures.findings.words import IMAGES, PERCENT, Row, Study, amount, bounded

LESS = 0.99
"""Cores that allow less than this share of the ideal are worth a word."""


def sentences(tables: Mapping[str, pd.DataFrame], study: Study) -> Iterator[str]:
    """Of each framework that ran on several numbers of ranks: the fewest and the most."""
    rows = ordered(with_hardware(tables["scaling"]), (*SYSTEM, "framework", "ranks"))
    several = rows.groupby([*SYSTEM, "framework"], sort=False)["ranks"].transform("nunique") > 1
    yield from bounded(list(_sentences(rows[several], study)), "scaling")


def _sentences(rows: pd.DataFrame, study: Study) -> Iterator[str]:
    columns = ["framework", *study.varying]
    keyed = rows.assign(name=in_words(rows, columns, ", "))
    for name in keyed["name"].unique():
        for _, own in groups(keyed[keyed["name"] == name], list(SYSTEM)):
            by_ranks = records(own.sort_values("ranks"))
            yield _of_framework(name, by_ranks[0], by_ranks[-1])


def _of_framework(name: str, fewest: Row, most: Row) -> str:
    rates = " and ".join(
        f"{amount(row, 'images_per_s', IMAGES)} on {counted(row['ranks'], 'rank')}"
        for row in (fewest, most)
    )
    return (
        f"{name}: {rates}, which is {amount(most, 'efficiency', PERCENT)} of ideal scaling"
        f"{_allowed(most)}."
    )


def _allowed(row: Row) -> str:
    """What the cores of the ranks allow, where it is less than the ideal."""
    ideal = row["images_per_s"] / row["efficiency"]
    share = row["allowed_images_per_s"] / ideal
    if not share < LESS:  # also where it is not known
        return ""
    return f". The cores that the ranks share allow {100 * share:.0f} %"
