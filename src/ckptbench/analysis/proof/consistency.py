"""The table `consistency`: whether the versions of a run are the states of their steps.

A version that holds tensors of another step is **torn**: its strategy read them too late, or wrote over what it had read.
No reference is needed: the run itself recorded a digest before each save and, after training, one of every version that
was still there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ckptbench.analysis.proof.resume_proof import NAMED
from ckptbench.analysis.tables.columns import REPEAT, RUN, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.grouping import by_run, records
from ckptbench.analysis.tables.schema import Column, Row, Table
from ckptbench.matrix.networks.tensor_groups import GROUPS

CONSISTENCY = Table(
    "consistency",
    "One row a run with checkpoints that recorded a proof: its versions, as its strategy loads them after training,"
    " against the digests taken just before each was saved.",
    ("run",),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("versions_taken", "integer", "1", "versions that were committed, at all levels together"),
        Column("versions_compared", "integer", "1", "of these, those that were still there after training (checkpoints.keep_during_run) and have a digest of their step"),
        Column("whole", "integer", "1", "of these, those that have the same digest of every tensor on every rank"),
        Column("torn", "integer", "1", "versions_compared - whole"),
        Column("first_torn_step", "count", "1", "of the first that is torn"),
        Column("torn_tensors", "integer", "1", "names of tensors that differ in any version, on any rank"),
        Column("torn_names", "text", "", "up to three of these"),
        Column("torn_groups", "text", "", "groups of all these"),
        Column("matches_step", "text", "", "other steps of which torn tensors have the digest"),
        Column("consistent", "verdict", "", "whether no version is torn"),
    ),
)  # fmt: skip

OF_RANK = ["run", "rank", "step"]
TENSOR = [*OF_RANK, "tensor", "group"]
VERSION = ["step", "level"]
POSITION = "position"
"""The group that only a digest before a save has: no strategy loads it."""


def consistency(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `checkpoints` and `digests`."""
    digests = tables["digests"]
    recorded = digests["run"].unique()
    committed = tables["checkpoints"][tables["checkpoints"]["writes"]]
    versions = committed[committed["run"].isin(recorded)].drop_duplicates(["run", "step"])
    taken = (versions["levels"].str.count(r"\+") + 1).groupby(versions["run"]).sum()
    compared = _compared(digests)
    matches = _matches(compared[compared["torn"]], digests)
    of_run, steps_of_run = by_run(compared), by_run(matches)
    runs = tables["runs"]
    return CONSISTENCY.rows(
        {
            **run,
            "versions_taken": taken[run["run"]],
            **_verdict(of_run.get(run["run"], compared.iloc[:0])),
            "matches_step": _joined(steps_of_run.get(run["run"], matches.iloc[:0])["step"]),
        }
        for run in records(runs.loc[runs["run"].isin(taken.index), ["run", *SETUP, "repeat"]])
    )


def _compared(digests: pd.DataFrame) -> pd.DataFrame:
    """Every tensor of every version that can be compared: the columns of TENSOR, `level` and `digest` of the version, and
    `torn`."""
    loaded = _last(digests[digests["when"] == "version"])
    saved = _last(digests[(digests["when"] == "saved") & (digests["group"] != POSITION)])
    versions = loaded[[*OF_RANK, "level"]].drop_duplicates()
    known = versions.merge(saved[OF_RANK].drop_duplicates())
    expected = known.merge(saved.drop(columns="level"))
    both = loaded.merge(known).merge(
        expected, on=[*TENSOR, "level"], how="outer", suffixes=("", "_saved")
    )
    return both.assign(torn=both["digest"] != both["digest_saved"])


def _last(digests: pd.DataFrame) -> pd.DataFrame:
    """Of each moment the digests of the last attempt at it: they are sorted by attempt."""
    own = [*TENSOR, "level"]
    return digests.drop_duplicates(own, keep="last")[[*own, "digest"]]


def _matches(torn: pd.DataFrame, digests: pd.DataFrame) -> pd.DataFrame:
    """Other steps (`step`) of each run that torn tensors are of."""
    others = digests.loc[digests["when"] != "version", [*TENSOR, "digest"]]
    found = torn.merge(
        others, on=["run", "rank", "tensor", "digest"], suffixes=("_claimed", "")
    )  # never the step that it claims: its digest is another
    return found[["run", "step"]].drop_duplicates()


def _verdict(compared: pd.DataFrame) -> Row:
    torn = compared[compared["torn"]]
    versions, torn_versions = (len(rows[VERSION].drop_duplicates()) for rows in (compared, torn))
    first = torn["step"].min()
    first_tensors = torn.loc[torn["step"] == first, "tensor"].unique()
    groups = set(torn["group"])
    return {
        "versions_compared": versions,
        "whole": versions - torn_versions,
        "torn": torn_versions,
        "first_torn_step": first if torn_versions else None,
        "torn_tensors": torn["tensor"].nunique(),
        "torn_names": _joined(first_tensors, NAMED),
        "torn_groups": ", ".join(group for group in GROUPS if group in groups),
        "consistent": torn_versions == 0 if versions else None,
    }


def _joined(values: Sequence[Any] | pd.Series[Any], most: int | None = None) -> str:
    return ", ".join(map(str, sorted(values)[:most]))
