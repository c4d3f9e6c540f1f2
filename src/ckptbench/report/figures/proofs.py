"""Runs that were compared with uninterrupted ones: how figures group them, and say what is bitwise equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ckptbench.analysis.tables.grouping import groups
from ckptbench.matrix.registry import NOTHING, RERUN
from ckptbench.report.answer.labels import describe
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    in_words,
    ordered,
    separating,
    with_hardware,
)

RESUMED = "resumed"
NOUNS = {RESUMED: "resumed runs", RERUN: "second runs of the same seed"}
SETTING = tuple(column for column in PANEL_COLUMNS if column != "deterministic")
SELECTED = "Panels show the setups with the most comparisons and the largest number of ranks; the counts that follow cover all"
NOTHING_COMPARED = (
    "No run was compared with an uninterrupted one, so there is no difference to show. Set training.proof to true to record the "
    "comparison."
)


def prepared(proof: pd.DataFrame) -> pd.DataFrame:
    """The runs whose restarts left nothing out on purpose, with their `kind`, in order: deterministic mode and resumed runs first."""
    honest = with_hardware(proof[proof["omit"] == NOTHING])
    kinds = np.where(honest["history"] == RERUN, RERUN, RESUMED).astype(object)
    by_kind = honest.assign(kind=kinds).sort_values(["deterministic", "kind"], ascending=False, kind="stable")  # fmt: skip
    return ordered(by_kind, (*SETTING, "framework", "ranks"))


def selected(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs that panels show, with `title`: their framework, and the settings that vary.

    Of the settings, those are shown that were compared in the most modes and kinds; of each framework, the runs with
    the most ranks.
    """
    ways = rows["deterministic"].astype(str) + rows["kind"]
    compared = ways.groupby([rows[column] for column in SETTING]).transform("nunique")
    full = rows[compared == compared.max()]
    most = full.groupby([*SETTING, "framework"])["ranks"].transform("max")
    shown: pd.DataFrame = full[full["ranks"] == most]
    names = ["framework", *separating(shown, (*SETTING, "ranks"))]
    return shown.assign(title=in_words(shown, names, ", "))


def verdict(runs: pd.DataFrame) -> str:
    """`bitwise equal`, or how many of these runs part from their references, and when the first does."""
    parted = runs[~runs["bit_equal"]]
    if parted.empty:
        return "bitwise equal"
    first = parted["first_epoch"].min()
    where = "at the end" if pd.isna(first) else f"at epoch {first + 1}"
    if parted["first_epoch"].nunique(dropna=False) > 1:
        where = where.replace("at", "from", 1)
    if len(runs) == 1:
        return f"parts {where}"
    return f"part {where}" if len(parted) == len(runs) else f"{_share(parted, runs)} part {where}"


def equality(compared: pd.DataFrame, shown: pd.DataFrame) -> str:
    """Sentences for a caption: how many runs of each mode and kind are bitwise equal, and which are not."""
    counts = [
        f"{described[0].upper()}{described[1:]}, {noun}: {_count(runs)}"
        for mode in (True, False)
        for described in [describe("deterministic", mode)]
        for kind, noun in NOUNS.items()
        if len(runs := compared[(compared["deterministic"] == mode) & (compared["kind"] == kind)])
    ]
    return ". ".join([SELECTED, *counts] if len(shown) < len(compared) else counts)


def _count(runs: pd.DataFrame) -> str:
    equal = runs[runs["bit_equal"]]
    count = f"{_share(equal, runs)} bitwise equal"
    return count if len(equal) in (0, len(runs)) else f"{count}, not {'; '.join(parted(runs))}"


def parted(runs: pd.DataFrame) -> Iterator[str]:
    """The frameworks whose runs differ, with the numbers of ranks where runs differ at some of them only."""
    names = ["framework", *separating(runs, SETTING)]
    for _, own in groups(runs, names):
        equal = own.groupby("ranks")["bit_equal"].all()
        if not equal.any():
            yield _how_many(own, names)
        else:
            for ranks in equal.index[~equal]:
                yield _how_many(own[own["ranks"] == ranks], [*names, "ranks"])


def _how_many(runs: pd.DataFrame, names: Sequence[str]) -> str:
    return f"{in_words(runs, names, ', ').iloc[0]} ({_share(runs[~runs['bit_equal']], runs)})"


def _share(some: pd.DataFrame, every: pd.DataFrame) -> str:
    return f"{len(some)} of {len(every)}"


def restarts(restore: pd.DataFrame, runs: pd.DataFrame) -> list[float]:
    """Where in their training these runs were restarted, in epochs done, each place once."""
    return sorted(set(restore.loc[restore["run"].isin(set(runs["run"])), "epoch"].dropna()))
