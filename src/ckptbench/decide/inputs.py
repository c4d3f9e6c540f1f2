"""The table `decision_costs`: what a step, a checkpoint and a failure cost, as a study measured them.

It is all that the decision takes from a study. Whoever has no study gives the same numbers in a file (`given`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval, Repeated, estimates
from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.columns import (
    CHECKPOINT_COLUMNS,
    SYSTEM,
    SYSTEM_COLUMNS,
)
from ckptbench.analysis.tables.grouping import groups, of_first_recovery, records
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.catalogue import RECOVERIES, RESTART, WHOLE, registered, undisturbed_recovery
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.levels import SHARED, keeps_copies, named_levels

FAILURES, RESTARTS, STARTS, GIVEN = "failures", "restarts", "starts", "given"
UNCERTAIN = {
    "step_s": "of the training without checkpoints",
    "stall_s": "training is blocked by one checkpoint",
    "slowdown_s": "extra time of the steps while one checkpoint is written in the background",
    "durable_s": "from the start of a save until the version can be gone on from; where it lies at the nearest levels first, from there",
    "shared_durable_s": "from the start of a save until the version lies at the level `shared`; `durable_s` where each goes there",
    "down_s": "from a failure until training goes on from a version, without the work that is lost",
    "pause_s": "what a failure costs that survivors go on from; without slower steps where `replaces` is false; 0 where none is",
}
"""The times that have an interval."""
DECISION_COSTS = Table(
    "decision_costs",
    "One row a setup with checkpoints and a recovery: the costs from which the decision is computed. A setup that was measured with several"
    " recoveries has a row with each.",
    (*SYSTEM, "strategy", "format", "interval", "recovery"),
    (
        *SYSTEM_COLUMNS,
        *CHECKPOINT_COLUMNS,
        Column("recovery", "text", "", "how training goes on after a failure, with its options"),
        Column("steps_per_epoch", "integer", "1", "an interval of one epoch is so many steps"),
        *(
            column
            for name, meaning in UNCERTAIN.items()
            for column in (
                Column(name, "number", "s", meaning),
                Column(f"{name}_lo", "number", "s", "lower end of its 95 % interval; missing where nothing shows how far it differs"),
                Column(f"{name}_hi", "number", "s", "upper end of it"),
            )
        ),
        Column("slower", "number", "1", "a step with this recovery ÷ one with `restart` (else with the first recovery by name), where nothing fails, from the baselines with either; 1 where one of them did not run. Below 1 the decision takes it as 1"),
        Column("slower_lo", "number", "1", "lower end of its 95 % interval; missing where nothing shows how far it differs"),
        Column("slower_hi", "number", "1", "upper end of it"),
        Column("survived", "number", "1", "of the failures that killed a rank and left another, the part that survivors went on from; 0 where all ranks start again"),
        Column("replaces", "flag", "", "whether the recovery puts a new rank in the place of a lost one by itself; else there are fewer until a replacement comes"),
        Column("shared_every", "integer", "1", "of so many versions one goes to the level `shared`; the others lie at nearer levels of the nodes alone"),
        Column("copied", "flag", "", "whether other nodes keep copies of the versions at nearer levels, so that none is lost with one node; false where one node was measured, for it has no partner"),
        Column("bytes", "number", "bytes", "of a version; missing where not known"),
        Column("foremost", "flag", "", "whether, of the intervals at which this strategy was measured, this one has the most timed checkpoints: of others figures and sentences say nothing"),
        Column("down_from", "text", "", "where `down_s` comes from. `failures`: ranks that were killed. `restarts`: restarts of killed runs, without detection. `starts`: the starts of runs; to load a version is taken to last as long as to write one. `given`: a file of the user"),
        Column("note", "text", "", "what to know of the row; empty where nothing"),
        Column("source", "text", "", "where and when the costs were measured, or who gave them"),
    ),
)  # fmt: skip

KILL = "kill"
"""The failures that tell what one costs. Hangs and full disks cost other times, which a limit of the config sets."""
NOT_LOST_AGAIN = ("unfinished_s", "again_s")
"""Parts of a failure that are lost work, which the model computes from the interval."""
CELL = (*SYSTEM, "strategy", "format")
MODEST = "the runs of one repeat alone: no interval"
UNKNOWN_SLOWDOWN = "slower steps during a save are taken as none, as every step ran beside one"
AS_FAST = Estimate(1.0, UNKNOWN)
Row = dict[str, Any]
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class _Down:
    """What a restart from a version costs, of some cells."""

    estimate: Estimate
    source: str


def decision_costs(tables: Tables) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `phases`, `failures`, `restore`, `scaling`, `strategies` and `provenance`.

    Rows are of setups whose checkpoints and whose steps were timed.
    """
    steps = {_key(row, SYSTEM): _step_s(row) for row in records(tables["scaling"])}
    timed = tables["strategies"]
    timed = timed[
        (timed["history"] == WHOLE) & timed["stall_s"].notna() & timed["durable_s"].notna()
    ]
    runs = tables["runs"].groupby(list(SYSTEM), dropna=False)[["steps_per_epoch", "nodes"]].first()
    measured = _Measured.of(tables)
    most = timed.groupby([timed[name] for name in (*CELL, "recovery")])["checkpoints"].idxmax()
    timed = timed.assign(foremost=timed.index.isin(most))
    provenance = tables["provenance"]
    return DECISION_COSTS.rows(
        {
            **{column.name: row[column.name] for column in (*SYSTEM_COLUMNS, *CHECKPOINT_COLUMNS)},
            "steps_per_epoch": runs["steps_per_epoch"][_key(row, SYSTEM)],
            **steps[_key(row, SYSTEM)],
            **_saving(row, int(runs["nodes"][_key(row, SYSTEM)])),
            "bytes": row["bytes"],
            "foremost": row["foremost"],
            "source": caption_facts(provenance[provenance["measured_on"] == row["measured_on"]]),
            **recovering,
        }
        for row in records(timed)
        if _key(row, SYSTEM) in steps
        for recovering in measured.recoveries(row)
    )  # fmt: skip


def _key(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _step_s(row: Row) -> Row:
    """Seconds of a step, from the throughput of all ranks."""
    samples = row["ranks"] * row["batch_size"]
    ends = {"": "", "_lo": "_hi", "_hi": "_lo"}
    return {f"step_s{end}": samples / row[f"images_per_s{other}"] for end, other in ends.items()}


def _saving(row: Row, nodes: int) -> Row:
    """The columns on checkpoints, of a row of `strategies` that was measured on so many nodes."""
    # Where every version goes to `shared`, nothing tells from when it lies at a nearer level.
    every = named_levels(row["strategy"])[SHARED]
    nearest = "near_durable" if every > 1 and pd.notna(row["near_durable_s"]) else "durable"
    measured = {"stall_s": "stall", "slowdown_s": "slowdown", "durable_s": nearest, "shared_durable_s": "durable"}  # fmt: skip
    ends = {"": "_s", "_lo": "_low_s", "_hi": "_high_s"}
    return {
        **{
            f"{name}{end}": row[f"{column}{other}"]
            for name, column in measured.items()
            for end, other in ends.items()
        },
        "shared_every": every,
        "copied": every > 1 and nodes > 1 and keeps_copies(row["strategy"]),
    }


@dataclass(frozen=True, slots=True)
class _Measured:
    """What failures and restarts cost, as far as a study has measured it."""

    downs: Mapping[tuple[Any, ...], _Down]
    """By system, strategy, format and recovery: of failures after which all ranks started again."""
    restarts: Mapping[tuple[Any, ...], Estimate]
    """By system, strategy and format: of killed runs."""
    starts: Mapping[tuple[Any, ...], Estimate]
    """By system: of any start of a run, without a load."""
    survivals: Mapping[tuple[Any, ...], Row]
    """By system and recovery: columns of `decision_costs` on failures that survivors went on from."""
    slower: Mapping[tuple[Any, ...], Estimate]
    """By system and recovery without options: a step ÷ one with the first recovery."""

    @classmethod
    def of(cls, tables: Tables) -> _Measured:
        strikes = kills(tables)
        step_s = {_key(row, SYSTEM): _step_s(row)["step_s"] for row in records(tables["scaling"])}
        again = strikes[~strikes["went_on"]]
        downs = _by(again, [*CELL, "recovery"], "down_s")
        return cls(
            downs={key: _Down(estimate, FAILURES) for key, estimate in downs.items()},
            restarts=_by(_restarted(tables["restore"], step_s), CELL, "down_s"),
            starts=_by(_started(tables, step_s), SYSTEM, "down_s"),
            survivals=_survivals(strikes, _joined(tables)),
            slower=_slower(tables),
        )

    def recoveries(self, row: Row) -> Iterator[Row]:
        """The columns on recovery, for each one that can follow the checkpoints of this row of `strategies`."""
        system, cell = _key(row, SYSTEM), _key(row, CELL)
        base = row["recovery"]
        if base == RESTART.name:
            names = {key[-1] for key in self.downs if key[:-1] == cell} | {RESTART.name}
            for name in sorted(name for name in names if not _is_elastic(name)):
                yield {**self._from_version(cell, name, row), "survived": 0.0, "replaces": True, **_uncertain("pause_s", Estimate(0.0, UNKNOWN)), "recovery": name}  # fmt: skip
        for (*of, name), columns in self.survivals.items():
            entry = RECOVERIES[registered(name, RECOVERIES)]
            fits = tuple(of) == system and entry.goes_with(registered(row["strategy"]))
            if fits and base == undisturbed_recovery(name):
                yield {**self._from_version(cell, name, row), **columns, "recovery": name}

    def _from_version(self, cell: tuple[Any, ...], recovery: str, row: Row) -> Row:
        """`down_s` and where it comes from: what is nearest to the truth."""
        down = self._down(cell, recovery, row)
        known = not math.isnan(down.estimate.interval.lo)
        return {
            **_uncertain("down_s", down.estimate),
            **_uncertain(
                "slower",
                self.slower.get((*cell[: len(SYSTEM)], undisturbed_recovery(recovery)), AS_FAST),
            ),
            "down_from": down.source,
            "note": "; ".join(
                [
                    *([] if known else [f"down_s: {MODEST}"]),
                    *([UNKNOWN_SLOWDOWN] if pd.isna(row["slowdown_s"]) else []),
                ]
            ),
        }

    def _down(self, cell: tuple[Any, ...], recovery: str, row: Row) -> _Down:
        for name in (recovery, RESTART.name):
            if (*cell, name) in self.downs:
                return self.downs[*cell, name]
        if cell in self.restarts:
            return _Down(self.restarts[cell], RESTARTS)
        # An elastic recovery has an environment of its own, and so a system that was never restarted.
        start = self.starts[cell[: len(SYSTEM)]]
        if pd.notna(row["load_s"]):
            return _Down(start.minus(-row["load_s"]), STARTS)
        written = Estimate(row["durable_s"], Interval(row["durable_low_s"], row["durable_high_s"]))
        return _Down(_sum(start, written), STARTS)


def _is_elastic(recovery: str) -> bool:
    return RECOVERIES[registered(recovery, RECOVERIES)].elastic


def _sum(one: Estimate, other: Estimate) -> Estimate:
    """Of two independent costs: above and below, the squares of the distances to the ends are added. One without interval adds none."""
    value = one.value + other.value
    pairs = zip(
        (one.interval.lo, one.interval.hi), (other.interval.lo, other.interval.hi), strict=True
    )
    apart = [
        [end - own.value for end, own in zip(ends, (one, other), strict=True)] for ends in pairs
    ]
    if all(math.isnan(distance) for distances in apart for distance in distances):
        return Estimate(value, UNKNOWN)
    below, above = (
        math.hypot(*(0.0 if math.isnan(own) else own for own in distances)) for distances in apart
    )
    return Estimate(value, Interval(value - below, value + above))


def _uncertain(name: str, estimate: Estimate) -> Row:
    lo, hi = estimate.interval
    return {name: estimate.value, f"{name}_lo": lo, f"{name}_hi": hi}


def _by(frame: pd.DataFrame, names: Sequence[str], column: str) -> dict[tuple[Any, ...], Estimate]:
    """The mean of the column, for equal values of `names`. A run is one observation, and its mean counts."""
    found = list(groups(frame, names)) if len(frame) else []
    each = [rows.groupby("run")[column].mean().to_numpy(float) for _, rows in found]
    known = estimates([Repeated.mean(own) for own in each])
    return {_key(key, names): own for (key, _), own in zip(found, known, strict=True)}


def kills(tables: Tables) -> pd.DataFrame:
    """The failures that killed ranks and were recovered from before the next one, with columns of their run.

    `went_on`: whether survivors went on; `leaves_some`: whether there could be any; `down_s`: the cost without lost work.
    """
    failures = tables["failures"]
    if failures.empty:
        return failures.assign(
            went_on=False, leaves_some=False, down_s=0.0, **dict.fromkeys((*CELL, "recovery"), "")
        )
    over = failures["second"] + failures["total_s"] - failures["unfinished_s"]
    follows = failures.groupby("run")["second"].shift(-1, fill_value=math.inf)
    whole = failures[
        (failures["kind"] == KILL) & (over < follows) & failures["ranks_after"].notna()
    ].copy()
    whole["went_on"] = (whole["launch_s"] + whole["import_s"]) == 0
    whole["down_s"] = whole["total_s"] - whole[list(NOT_LOST_AGAIN)].sum(axis=1)
    whole = whole.merge(tables["runs"][["run", "nodes", *CELL, "recovery"]], on="run")
    of_node = whole["victim"].str.startswith("node")
    could = np.where(of_node, whole["nodes"] > 1, whole["ranks_before"] > 1)
    whole["leaves_some"] = whole["went_on"] | could
    return whole


def _restarted(restore: pd.DataFrame, step_s: Mapping[tuple[Any, ...], float]) -> pd.DataFrame:
    """Restarts of killed runs: all of their first step that a usual one does not take is part of the restart."""
    usual = [step_s.get(_key(row, SYSTEM), math.nan) for row in records(restore)]
    return restore.assign(down_s=restore["total_s"] - np.array(usual, float)).dropna(
        subset="down_s"
    )


PHASES = ("launch", "meet", "import", "join", "data", "build")


def _started(tables: Tables, step_s: Mapping[tuple[Any, ...], float]) -> pd.DataFrame:
    """The first attempts of all runs, of the rank that took the longest, with what their first step takes more than a usual one."""
    phases, steps = tables["phases"], tables["steps"]
    own = phases[(phases["attempt"] == 1) & phases["phase"].isin(PHASES)]
    of_rank = ["run", "rank"]
    first = steps[steps["step"] == 0].groupby(of_rank)["duration_s"].sum()
    seconds = own.groupby(of_rank)["duration_s"].sum().add(first).groupby("run").max()
    started = tables["runs"][["run", *SYSTEM]].merge(seconds.rename("start_s"), on="run")
    usual = [step_s.get(_key(row, SYSTEM), math.nan) for row in records(started)]
    return started.assign(down_s=started["start_s"] - np.array(usual, float)).dropna(
        subset="down_s"
    )


def _joined(tables: Tables) -> set[str]:
    """Runs in which a rank came in place of a lost one: a rank has had more processes than the run has attempts."""
    processes = tables["phases"].groupby("run")["attempt"].max()
    attempts = tables["runs"].set_index("run")["attempts"]
    more = processes > attempts.reindex(processes.index)
    return set(more[more].index)


def _slower(tables: Tables) -> dict[tuple[Any, ...], Estimate]:
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
    ratios = [Repeated.ratio(list(rows["step_s"]), list(rows["step_s_first"])) for _, rows in found]
    known = estimates(ratios, [_key(key, SYSTEM) for key, _ in found])
    return {
        _key(key, [*SYSTEM, "recovery"]): estimate
        for (key, _), estimate in zip(found, known, strict=True)
    }


def _survivals(strikes: pd.DataFrame, joined: set[str]) -> dict[tuple[Any, ...], Row]:
    """By system and recovery: the part of the failures that survivors went on from, and what these cost."""
    names = [*SYSTEM, "recovery"]
    elastic = strikes[[_is_elastic(name) for name in strikes["recovery"]]] if len(strikes) else strikes  # fmt: skip
    if elastic.empty:
        return {}
    replaces = {
        _key(key, names): bool(rows.loc[rows["went_on"], "run"].isin(joined).any())
        for key, rows in groups(elastic, names)
    }
    own = np.array([replaces[_key(row, names)] for row in records(elastic)])
    slower = elastic["slower_s"].where(~own, 0.0)
    went_on = elastic.assign(pause_s=elastic["total_s"] - slower)[elastic["went_on"]]
    pauses = _by(went_on, names, "pause_s")
    return {
        _key(key, names): {
            **_uncertain("pause_s", pauses[_key(key, names)]),
            "survived": float(rows.loc[rows["leaves_some"], "went_on"].mean()),
            "replaces": replaces[_key(key, names)],
        }
        for key, rows in groups(elastic, names)
        if _key(key, names) in pauses
    }
