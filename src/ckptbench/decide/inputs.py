"""The table `decision_costs`: what a step, a checkpoint and a failure cost, as a study measured them.

It is all that the decision takes from a study. Whoever has no study gives the same numbers in a file (`given`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.scaling import BUT_RANKS
from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval
from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.columns import (
    CHECKPOINT_COLUMNS,
    RECOVERY,
    RECOVERY_COLUMNS,
    SETUP,
    SYSTEM,
    SYSTEM_COLUMNS,
)
from ckptbench.analysis.tables.grouping import groups, records, row_by
from ckptbench.analysis.tables.schema import Column, Row, Table, with_ends
from ckptbench.decide.against_baseline import NOT_SLOWER, slower_everywhere, with_slowdown
from ckptbench.decide.projection import FIT, GROWING
from ckptbench.decide.recoveries import (
    CELL,
    ELASTIC,
    as_usual,
    key_of,
    kills,
    means,
    restarted,
    slower_steps,
    started,
    step_seconds,
    survivals,
    with_joined_ranks,
)
from ckptbench.matrix.registry import FRAMEWORKS, RECOVERIES, RESTART, WHOLE, undisturbed_recovery

FAILURES, RESTARTS, STARTS, GIVEN = "failures", "restarts", "starts", "given"
UNCERTAIN = {
    "step_s": "of the training without checkpoints",
    "stall_s": "as in `checkpoint_cost`",
    "slowdown_s": "extra time of steps while one checkpoint is written in the background (from `paired` minus the stall, if every step overlapped a save); of a blocking strategy, extra time after a save, seen in `paired` but not in `in_run`",
    "durable_s": "from the start of a save until a restart can use the version, at the nearest level",
    "shared_durable_s": "the same at the level `shared`",
    "down_s": "from a failure until training continues from a version",
    "pause_s": "cost of a failure after which survivors continue; without slower steps if `replaces` is false",
}
"""The times that have an interval."""
COSTED_COLUMNS = (*SYSTEM_COLUMNS, *CHECKPOINT_COLUMNS, *RECOVERY_COLUMNS)
"""What has costs: checkpoints of a system, and a recovery."""
COSTED = tuple(column.name for column in COSTED_COLUMNS)
UNFINISHED = "asynchronous saves finish later than the log shows, so more is lost"
"""A note on a row of a training log."""
DECISION_COSTS = Table(
    "decision_costs",
    "One row per setup with checkpoints and recovery: the input of the decision.",
    COSTED,
    (
        *COSTED_COLUMNS,
        Column("steps_per_epoch", "integer", "1", "of every rank"),
        *(
            column
            for name, meaning in UNCERTAIN.items()
            for column in with_ends(name, "s", meaning)
        ),
        *with_ends("slower", "1", "step time with this recovery ÷ step time with `restart`, from the baselines; at least 1, and 1 if one is missing"),
        *with_ends("slower_everywhere", "1", "of a background strategy: step time even while nothing is written ÷ step time without checkpoints: (1 + `paired`) ÷ (1 + `in_run`) of `overhead`, if they disagree and `paired` is higher; else missing"),
        Column("survived", "number", "1", "fraction of failures with survivors after which these continued"),
        Column("survived_of", "count", "1", "number of such failures"),
        Column("replaces", "flag", "", "whether a new rank replaces a lost one"),
        Column("shared_every", "integer", "1", "every n-th version goes to the level `shared`; 0: none"),
        Column("copied", "flag", "", "whether other nodes keep copies of versions at the levels `memory` and `node`"),
        Column("bytes", "number", "bytes", "of a version"),
        Column("representative", "flag", "", "whether figures and the answer use this interval of the strategy"),
        Column("today", "flag", "", "of a user's costs: whether it is the first strategy and recovery, whose interval is in use"),
        Column("growth", "text", "", "JSON: how costs grow with the number N of GPUs: `fit`: for each cost a, b and c of a + b/N + cN. Empty: constant"),
        Column("down_from", "text", "", "where `down_s` comes from: `failures`, `restarts` of killed runs, `starts` of runs (with a write for a load), or `given` by the user"),
        Column("note", "text", "", "remarks on the row"),
        Column("source", "text", "", "where and when the costs were measured, or who entered them"),
    ),
)  # fmt: skip

MODEST = "only one repeat: no interval"
UNKNOWN_SLOWDOWN = "the slowdown during a save counts as 0, as every step ran beside a save"
AS_FAST = Estimate(1.0, UNKNOWN)
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class _Down:
    """What a restart from a version costs, and where that is from."""

    estimate: Estimate
    source: str


def _source(tables: Mapping[str, pd.DataFrame], measured_on: str) -> str:
    """Where and when the study measured on a CPU, or on a GPU, and how many of these runs others disturbed."""
    provenance, runs, machine = tables["provenance"], tables["runs"], tables["machine"]
    own = runs.loc[runs["measured_on"] == measured_on, "run"]
    disturbed = machine["run"].isin(own) & machine["disturbed"].fillna(False).astype(bool)
    facts = [caption_facts(provenance[provenance["measured_on"] == measured_on])]
    if disturbed.any():
        facts.append(f"others disturbed {disturbed.sum()} of {len(own)} runs (table machine)")
    return ", ".join(facts)


def decision_costs(tables: Tables) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `phases`, `failures`, `restore`, `scaling`, `overhead`, `strategies`, `machine` and `provenance`.

    Rows are of setups whose checkpoints and whose steps were timed. A number of ranks that share cores is left out where the
    same training ran with a core for each rank: elsewhere its times would be others.
    """
    steps = {key_of(row, SYSTEM): step_seconds(row) for row in records(tables["scaling"])}
    timed = tables["strategies"]
    timed = timed[
        (timed["history"] == WHOLE) & timed["stall_s"].notna() & timed["durable_s"].notna()
    ]
    runs = tables["runs"].groupby(list(SYSTEM), dropna=False)[["steps_per_epoch", "nodes", "cores"]].first()  # fmt: skip
    timed = _with_own_cores(timed, runs)
    measured = _Measured.of(tables)
    timed = timed.assign(representative=timed.index.isin(_representative(timed)))
    overheads = row_by(tables["overhead"], SETUP)
    costs = DECISION_COSTS.rows(
        {
            **{column.name: row[column.name] for column in (*SYSTEM_COLUMNS, *CHECKPOINT_COLUMNS)},
            "steps_per_epoch": runs["steps_per_epoch"][key_of(row, SYSTEM)],
            **steps[key_of(row, SYSTEM)],
            **_saving(row),
            **(NOT_SLOWER if row["blocking"] else slower_everywhere(overheads.get(key_of(row, SETUP)))).columns("slower_everywhere"),
            "bytes": row["bytes"],
            "representative": row["representative"],
            "today": False,
            "source": _source(tables, str(row["measured_on"])),
            "growth": "",
            **recovering,
        }
        for own in records(timed)
        if key_of(own, SYSTEM) in steps
        for row in [with_slowdown(own, overheads.get(key_of(own, SETUP)), steps[key_of(own, SYSTEM)]["step_s"])]
        for recovering in measured.recoveries(row)
    )  # fmt: skip
    return costs.assign(
        growth=fitted(costs, [name for name in DECISION_COSTS.key if name != "ranks"])
    )


def _with_own_cores(timed: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows whose ranks have a core each, and all of a training that has none. `runs` has `nodes` and `cores` by system."""
    system = timed[list(SYSTEM)].join(runs[["nodes", "cores"]], on=list(SYSTEM))
    on_a_node = np.ceil(system["ranks"] / system["nodes"])
    own = (system["measured_on"] != "cpu") | (on_a_node <= system["cores"])
    return timed[own | ~own.groupby([system[name] for name in BUT_RANKS]).transform("any")]


def _representative(timed: pd.DataFrame) -> pd.Index:
    """One row of each strategy: the interval with most checkpoints that did not wait for the one before, as waiting changes their cost."""
    alone = timed["checkpoints"] * (1 - timed["waited"].fillna(0.0))
    ordered = timed.assign(alone=alone).sort_values("alone", ascending=False, kind="stable")
    return ordered.drop_duplicates([*CELL, "recovery"]).index


def _saving(row: Row) -> Row:
    """The columns on checkpoints, of a row of `strategies`."""
    # Where every version goes to `shared`, nothing tells from when it lies at a local tier.
    every = row["shared_every"]
    nearest = "near_durable_s" if every > 1 and pd.notna(row["near_durable_s"]) else "durable_s"
    measured = {"stall_s": "stall_s", "slowdown_s": "slowdown_s", "durable_s": nearest, "shared_durable_s": "durable_s"}  # fmt: skip
    return {
        **{
            f"{name}{end}": row[f"{column}{end}"]
            for name, column in measured.items()
            for end in ("", "_lo", "_hi")
        },
        "shared_every": every,
        "copied": False,
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
    recovery_columns: Mapping[str, Row]
    """By recovery, its columns."""

    @classmethod
    def of(cls, tables: Tables) -> _Measured:
        strikes = kills(tables)
        step_s = {
            key_of(row, SYSTEM): step_seconds(row)["step_s"] for row in records(tables["scaling"])
        }
        again = strikes[~strikes["went_on"]]
        downs = means(again, [*CELL, "recovery"], "down_s")
        return cls(
            downs={key: _Down(estimate, FAILURES) for key, estimate in downs.items()},
            restarts=means(restarted(as_usual(tables["restore"]), step_s), CELL, "down_s"),
            starts=means(started(tables, step_s), SYSTEM, "down_s"),
            survivals=survivals(strikes, with_joined_ranks(tables)),
            slower=slower_steps(tables),
            recovery_columns={
                RESTART.label: RESTART.columns("recovery"),
                **{
                    row["recovery"]: row
                    for row in records(strikes[list(RECOVERY)].drop_duplicates())
                },
            },
        )

    def recoveries(self, row: Row) -> Iterator[Row]:
        """The columns on recovery, for each one that can follow the checkpoints of this row of `strategies`."""
        system, cell = key_of(row, SYSTEM), key_of(row, CELL)
        base = row["recovery"]
        if base == RESTART.name:
            labels = {key[-1] for key in self.downs if key[:-1] == cell} | {RESTART.name}
            for label in sorted(labels):
                if self.recovery_columns[label]["recovery_name"] not in ELASTIC:
                    yield {**self._from_version(cell, label, row), "survived": 0.0, "replaces": True, **Estimate(0.0, UNKNOWN).columns("pause_s")}  # fmt: skip
        for (*of, label), columns in self.survivals.items():
            name = self.recovery_columns[label]["recovery_name"]
            fits = tuple(of) == system and RECOVERIES[name].goes_with(row["strategy_name"])
            if fits and base == undisturbed_recovery(name):
                yield {**self._from_version(cell, label, row), **columns}

    def _from_version(self, cell: tuple[Any, ...], recovery: str, row: Row) -> Row:
        """The columns of the recovery, and `down_s` with where it comes from: what is nearest to the truth."""
        own = self.recovery_columns[recovery]
        down = self._down(cell, recovery, row)
        undisturbed = undisturbed_recovery(own["recovery_name"])
        slower = self.slower.get((*cell[: len(SYSTEM)], undisturbed), AS_FAST)
        known = not math.isnan(down.estimate.interval.lo)
        return {
            **own,
            **down.estimate.columns("down_s"),
            **slower.columns("slower"),
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
        written = Estimate(row["durable_s"], Interval(row["durable_s_lo"], row["durable_s_hi"]))
        return _Down(_sum(start, written), STARTS)


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


TERMS = 3
"""Of `formulas.fitted_s`."""
OF_SHARDS = 2
"""Those that a save of shards has: each rank writes 1/N of the state, whatever N is."""


def fitted(costs: pd.DataFrame, alike: Sequence[str]) -> list[str]:
    """For each row of `decision_costs` the text for its column `growth`, from the rows that have `alike` in common and other numbers of ranks.

    Each cost is fitted by non-negative least squares on 1, 1/N and N, where at least three numbers of ranks were measured: two can be
    met by any two of these terms. What a save costs where ranks hold shards is fitted on 1 and 1/N alone, from two numbers on. Where
    one number lies in all of its intervals, or there are none, nothing shows that it changes.
    """
    found = [""] * len(costs)
    for _, rows in groups(costs.reset_index(drop=True), alike) if len(costs) else ():
        terms = {name: _terms(rows["framework"].iloc[0], name) for name in GROWING}
        fits = {name: _fit(rows, name, terms[name]) for name in GROWING if _is_known(rows, name, terms[name])}  # fmt: skip
        for place in rows.index if fits else ():
            found[place] = json.dumps({FIT: fits})
    return found


def _terms(framework: str, name: str) -> int:
    """How many of the terms of `formulas.fitted_s` the cost has."""
    shards = framework in FRAMEWORKS and FRAMEWORKS[framework].shards
    return OF_SHARDS if shards and name != "down_s" else TERMS


def _is_known(rows: pd.DataFrame, name: str, terms: int) -> bool:
    known = rows.dropna(subset=name)
    differ = known[f"{name}_lo"].max() > known[f"{name}_hi"].min()  # no interval shows nothing
    return bool(known["ranks"].nunique() >= terms and differ)


def _fit(rows: pd.DataFrame, name: str, terms: int) -> list[float]:
    from scipy.optimize import nnls  # it takes as long to load as a whole answer from a file

    known = rows.dropna(subset=name)
    ranks = known["ranks"].to_numpy(float)
    values = np.stack([np.ones_like(ranks), 1 / ranks, ranks], axis=1)[:, :terms]
    numbers, _ = nnls(values, known[name].clip(lower=0.0).to_numpy(float))
    return [*map(float, numbers), *[0.0] * (TERMS - terms)]
