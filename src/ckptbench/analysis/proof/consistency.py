"""The table `consistency`: whether the versions of a run are the states of their steps.

A version that holds tensors of another step is **torn**: its strategy read them too late, or wrote over what it had read.
No reference is needed: the run itself recorded a digest before each save and, after training, one of every version that
was still there.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.proof.resume_proof import NAMED, in_order
from ckptbench.analysis.tables.columns import REPEAT, RUN, SETUP, SETUP_COLUMNS
from ckptbench.analysis.tables.schema import Column, Table

CONSISTENCY = Table(
    "consistency",
    "One row per run with checkpoints and a proof: its versions, loaded by its strategy after training,"
    " compared with the digests taken just before each save.",
    ("run",),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("versions_taken", "integer", "1", "committed versions, over all levels"),
        Column("versions_compared", "integer", "1", "of these, those kept until after training (checkpoints.keep_during_run) that have a digest of their step"),
        Column("torn", "integer", "1", "of these, those in which the digest of a tensor differs on any rank"),
        Column("torn_names", "text", "", "up to three tensors that differ"),
        Column("torn_groups", "text", "", "their groups"),
        Column("consistent", "verdict", "", "whether no version is torn"),
    ),
)  # fmt: skip

OF_RANK = ["run", "rank", "step"]
TENSOR = [*OF_RANK, "tensor", "group"]
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
    torn = compared[compared["torn"]]
    by_version = compared.groupby(["run", "step", "level"])["torn"].any().groupby("run")
    rows = (
        tables["runs"][["run", *SETUP, "repeat"]]
        .merge(taken.rename("versions_taken").reset_index(), on="run")
        .join(by_version.agg(versions_compared="size", torn="sum"), on="run")
        .join(torn.groupby("run")["tensor"].agg(_names).rename("torn_names"), on="run")
        .join(torn.groupby("run")["group"].agg(in_order).rename("torn_groups"), on="run")
        .fillna({"versions_compared": 0, "torn": 0, "torn_names": "", "torn_groups": ""})
    )
    consistent = (rows["torn"] == 0).astype("boolean").where(rows["versions_compared"] > 0)
    return CONSISTENCY.frame(rows.assign(consistent=consistent))


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


def _names(torn: pd.Series[str]) -> str:
    return ", ".join(sorted(torn.unique())[:NAMED])
