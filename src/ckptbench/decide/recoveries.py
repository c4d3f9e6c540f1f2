"""What recoveries cost, out of the events of a study: failures that were recovered from, restarts of killed runs, starts of any run, and
what an elastic recovery makes of a step where nothing fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.statistics import Estimate, PerRepeat, with_intervals
from ckptbench.analysis.tables.columns import RECOVERY, SYSTEM
from ckptbench.analysis.tables.grouping import groups, of_first_recovery, records, struck
from ckptbench.analysis.tables.schema import Row
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.registry import NOTHING, RECOVERIES, WHOLE

Tables = Mapping[str, pd.DataFrame]
CELL = (*SYSTEM, "strategy", "format")
ELASTIC = frozenset(name for name, entry in RECOVERIES.items() if entry.elastic)
COLD = "cold"
KILL = "kill"
"""The failures that tell what one costs. Hangs and full disks cost other times, which a limit of the config sets."""
NOT_LOST_AGAIN = ("unfinished_s", "again_s")
"""Parts of a failure that are lost work, which the model computes from the interval."""


def means(
    frame: pd.DataFrame, names: Sequence[str], column: str
) -> dict[tuple[Any, ...], Estimate]:
    """The mean of the column, for equal values of `names`. A run is one observation, and its mean counts."""
    found = list(groups(frame, names)) if len(frame) else []
    each = [rows.groupby("run")[column].mean().to_numpy(float) for _, rows in found]
    known = with_intervals([PerRepeat.mean(own) for own in each])
    return {key_of(key, names): own for (key, _), own in zip(found, known, strict=True)}


def kills(tables: Tables) -> pd.DataFrame:
    """The failures that killed ranks and were recovered from before the next one, those of resume proofs apart, with columns of their run.

    `went_on`: whether survivors went on; `leaves_some`: whether there could be any; `down_s`: the cost without lost work.
    """
    runs, failures = tables["runs"], tables["failures"]
    failures = failures[failures["run"].isin(runs.loc[struck(runs), "run"])]
    if failures.empty:
        return failures.assign(
            went_on=False, leaves_some=False, down_s=0.0, **dict.fromkeys((*CELL, *RECOVERY), "")
        )
    over = failures["second"] + failures["total_s"] - failures["unfinished_s"]
    follows = failures.groupby("run")["second"].shift(-1, fill_value=math.inf)
    whole = failures[
        (failures["kind"] == KILL) & (over < follows) & failures["ranks_after"].notna()
    ].copy()
    whole["down_s"] = whole["total_s"] - whole[list(NOT_LOST_AGAIN)].sum(axis=1)
    whole = whole.merge(tables["runs"][["run", "nodes", *CELL, *RECOVERY]], on="run")
    # Where survivors go back to a version they lose what a restart loses.
    goes_on = whole["recovery_name"].isin(ELASTIC)
    whole["went_on"] = goes_on & ((whole["launch_s"] + whole["import_s"]) == 0)
    of_node = whole["victim"].str.startswith("node")
    could = np.where(of_node, whole["nodes"] > 1, whole["ranks_before"] > 1)
    whole["leaves_some"] = whole["went_on"] | could
    return whole


def as_usual(restore: pd.DataFrame) -> pd.DataFrame:
    """Without restarts that left a part out on purpose. Of a cell whose restarts read cold as well as warm, the cold ones: they last longer, and after the loss of
    a node its page cache is lost too."""
    whole = restore[restore["omit"] == NOTHING]
    is_cold = whole["cache"] == COLD
    has_cold = is_cold.groupby([whole[name] for name in CELL], dropna=False).transform("any")
    return whole[is_cold | ~has_cold.astype(bool)]


def restarted(restore: pd.DataFrame, step_s: Mapping[tuple[Any, ...], float]) -> pd.DataFrame:
    """Restarts of killed runs: all of their first step that a usual one does not take is part of the restart."""
    return _without_a_step(restore, "total_s", step_s)


def _without_a_step(
    rows: pd.DataFrame, column: str, step_s: Mapping[tuple[Any, ...], float]
) -> pd.DataFrame:
    """With `down_s`: the column less one step of the system. Rows whose step is unknown are left out."""
    usual = [step_s.get(key_of(row, SYSTEM), math.nan) for row in records(rows)]
    return rows.assign(down_s=rows[column] - np.array(usual, float)).dropna(subset="down_s")


PHASES = ("launch", "meet", "import", "join", "data", "build")


def started(tables: Tables, step_s: Mapping[tuple[Any, ...], float]) -> pd.DataFrame:
    """The first attempts of all runs, of the rank that took the longest, with what their first step takes more than a usual one."""
    phases, steps = tables["phases"], tables["steps"]
    own = phases[(phases["attempt"] == 1) & phases["phase"].isin(PHASES)]
    of_rank = ["run", "rank"]
    first = steps[steps["step"] == 0].groupby(of_rank)["duration_s"].sum()
    seconds = own.groupby(of_rank)["duration_s"].sum().add(first).groupby("run").max()
    started = tables["runs"][["run", *SYSTEM]].merge(seconds.rename("start_s"), on="run")
    return _without_a_step(started, "start_s", step_s)


def with_joined_ranks(tables: Tables) -> set[str]:
    """Runs in which a rank came in place of a lost one: a rank has had more processes than the run has attempts."""
    processes = tables["phases"].groupby("run")["attempt"].max()
    attempts = tables["runs"].set_index("run")["attempts"]
    more = processes > attempts.reindex(processes.index)
    return set(more[more].index)


def slower_steps(tables: Tables) -> dict[tuple[Any, ...], Estimate]:
    """By system and recovery, from baselines of equal repeats: a step ÷ one with the first recovery."""
    runs, steps = tables["runs"], tables["steps"]
    step_s = steps[(steps["rank"] == 0) & ~steps["warmup"]].groupby("run")["duration_s"].median()
    whole = runs[
        (runs["history"] == WHOLE) & (runs["interval"] == str(NEVER)) & runs["timing_valid"]
    ]
    own = whole.merge(step_s.rename("step_s"), on="run")
    pairs = own.merge(of_first_recovery(own), on=[*SYSTEM, "repeat"], suffixes=("", "_first"))
    pairs = pairs[pairs["recovery"] != pairs["recovery_first"]]
    found = list(groups(pairs, [*SYSTEM, "recovery"])) if len(pairs) else []
    ratios = [
        PerRepeat.ratio(list(rows["step_s"]), list(rows["step_s_first"])) for _, rows in found
    ]
    known = with_intervals(ratios, [key_of(key, SYSTEM) for key, _ in found])
    return {
        key_of(key, [*SYSTEM, "recovery"]): estimate
        for (key, _), estimate in zip(found, known, strict=True)
    }


def survivals(strikes: pd.DataFrame, joined: set[str]) -> dict[tuple[Any, ...], Row]:
    """By system and recovery: the part of the failures that survivors went on from, and what these cost."""
    names = [*SYSTEM, "recovery"]
    elastic = strikes[strikes["recovery_name"].isin(ELASTIC)]
    if elastic.empty:
        return {}
    replaces = {
        key_of(key, names): bool(rows.loc[rows["went_on"], "run"].isin(joined).any())
        for key, rows in groups(elastic, names)
    }
    own = np.array([replaces[key_of(row, names)] for row in records(elastic)])
    slower = elastic["slower_s"].where(~own, 0.0)
    went_on = elastic.assign(pause_s=elastic["total_s"] - slower)[elastic["went_on"]]
    pauses = means(went_on, names, "pause_s")
    return {
        key_of(key, names): {
            **pauses[key_of(key, names)].columns("pause_s"),
            "survived": float(rows.loc[rows["leaves_some"], "went_on"].mean()),
            "survived_of": int(rows["leaves_some"].sum()),
            "replaces": replaces[key_of(key, names)],
        }
        for key, rows in groups(elastic, names)
        if key_of(key, names) in pauses
    }


def key_of(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def step_seconds(row: Row) -> Row:
    """Seconds of a step, from the throughput of all ranks."""
    samples = row["ranks"] * row["batch_size"]
    ends = {"": "", "_lo": "_hi", "_hi": "_lo"}
    return {f"step_s{end}": samples / row[f"samples_per_s{other}"] for end, other in ends.items()}
