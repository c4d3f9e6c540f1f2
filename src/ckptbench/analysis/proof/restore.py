"""The table `restore`: how long a restart takes to its first step, and where the checkpoint was read from."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.derived_proof import RESTORE
from ckptbench.analysis.schema import SETUP

PHASES = ("launch", "meet", "import", "join", "data", "build", "load", "first_step")
"""What the total is the sum of, in order. Digests, taken in between for a proof, are no part of a restart."""
COLD, WARM = 0.9, 0.1
"""Shares of a checkpoint's bytes: on every node at least so many come from storage where cold, fewer than so many
where warm."""
RESTART = ["run", "attempt"]


def restore(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `phases`, `kills` and `digests`."""
    phases = tables["phases"][tables["phases"]["attempt"] > 1]
    rows = (
        tables["runs"][["run", *SETUP, "repeat", "steps_per_epoch"]]
        .merge(_slowest_ranks(phases), on="run")
        .merge(_read(phases), on=RESTART, how="left")
        .merge(_began_at(tables["digests"]), on=RESTART, how="left")
        .merge(_killed(tables["kills"]), on=RESTART, how="left")
    )
    return RESTORE.frame(
        rows.assign(
            epoch=rows["step"].astype("float64") / rows["steps_per_epoch"],
            after=rows["inside"].fillna(""),
            cold_shown=_cold_shown(rows),
        )
    )


def _slowest_ranks(phases: pd.DataFrame) -> pd.DataFrame:
    """One row a restart: seconds by phase and in all, of the rank whose restart took the longest."""
    seconds = phases.pivot_table(
        index=[*RESTART, "rank"], columns="phase", values="duration_s", aggfunc="sum"
    ).reindex(columns=[*PHASES, "evict"])
    reached = seconds[seconds["first_step"].notna()].fillna(0.0)
    named = reached.add_suffix("_s").assign(total_s=reached[list(PHASES)].sum(axis=1))
    return (
        named.reset_index()
        .sort_values("total_s", kind="stable")
        .drop_duplicates(RESTART, keep="last")
    )


def _read(phases: pd.DataFrame) -> pd.DataFrame:
    """By restart, known where it is of each rank: bytes from storage over all ranks, and over those of the nodes with
    the fewest and the most, which share a page cache; and the size of what a rank read, at most."""
    loads = phases[phases["phase"] == "load"]
    by_restart = loads.groupby(RESTART)
    by_node = loads.groupby([*RESTART, "node"])["read_bytes"].sum().groupby(RESTART)
    fetched = {
        "read_bytes": by_node.sum(),
        "fewest_on_a_node": by_node.min(),
        "most_on_a_node": by_node.max(),
    }
    known = by_restart["read_bytes"].count() == by_restart.size()
    return (
        pd.DataFrame(fetched)
        .astype("Int64")
        .where(known)
        .assign(bytes=by_restart["bytes"].max().astype("Int64"))
        .reset_index()
    )


def _began_at(digests: pd.DataFrame) -> pd.DataFrame:
    """By restart, the step of the checkpoint that it loaded."""
    loaded = digests[digests["when"] == "loaded"].drop_duplicates(RESTART)
    return loaded[RESTART].assign(step=loaded["step"].astype("Int64"))


def _killed(kills: pd.DataFrame) -> pd.DataFrame:
    """By restart, the moment within a checkpoint of the kill before it."""
    return kills.assign(
        attempt=kills["attempt"] + 1, inside=kills["inside"].replace("", "between")
    )[[*RESTART, "inside"]]


def _cold_shown(rows: pd.DataFrame) -> pd.Series:
    """Whether the kernel's counters say of every node what `cache` asks for."""
    cold = rows["fewest_on_a_node"] >= COLD * rows["bytes"]
    warm = rows["most_on_a_node"] < WARM * rows["bytes"]
    return cold.where(rows["cache"] == "cold", warm)
