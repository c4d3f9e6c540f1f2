"""What checkpoints cost an own training: the tables of the main study, by its own estimates, from what the probe measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.estimates import Slowdown
from ckptbench.analysis.cost.overhead import (
    TimedSetup,
    disturbed,
    disturbed_by,
    on_same_machine,
    overhead_of,
)
from ckptbench.analysis.cost.stall import mean_of_runs, steady_or_all
from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, PerRepeat, estimates
from ckptbench.analysis.cost.strategies import copied, ranked
from ckptbench.analysis.cost.times import RunTimes
from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.grouping import groups, records, row_by
from ckptbench.analysis.tables.schema import Row
from ckptbench.decide.against_baseline import slower_everywhere
from ckptbench.decide.inputs import BEGINS, DECISION_COSTS, representative, source_of
from ckptbench.matrix.interval import NEVER
from ckptbench.own.collected import UNKNOWN_STRATEGY
from ckptbench.own.seen import SeenRun
from ckptbench.own.times import known_hidden, times_of

UNKNOWN_HIDDEN = "hidden slowdown is taken as none, as no step followed a checkpoint"
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Timed:
    """The runs of a study that are timed, with the tables `runs`, `machine` and `stall` of them."""

    runs: Mapping[str, SeenRun]
    """By id of the cell."""
    tables: Tables

    @property
    def rows(self) -> pd.DataFrame:
        """Of the table `runs`, those that are timed."""
        runs = self.tables["runs"]
        return runs[runs["timing_valid"]]

    def times(self, run: str) -> RunTimes:
        """Of the run with this id, beside its baseline where that is timed."""
        own = self.runs[run]
        return times_of(own, self.runs.get(own.cell.baseline))

    def setups(self) -> Iterator[tuple[Row, list[Row]]]:
        """Each with checkpoints, and its runs as rows of that table."""
        saved = set(self.tables["stall"].query("not warmup")["run"])
        rows = self.rows[self.rows["run"].isin(saved) & (self.rows["interval"] != str(NEVER))]
        for key, group in groups(rows, SETUP) if len(rows) else ():
            yield key, records(group)


def overhead(timed: Timed) -> pd.DataFrame:
    """A run is paired with its baseline where both made equally many steps."""
    return overhead_of([_setup(timed, key, rows) for key, rows in timed.setups()])


def _setup(timed: Timed, key: Row, rows: Sequence[Row]) -> TimedSetup:
    known = {row["run"]: row for row in records(timed.rows)}
    beside = [(row, known[row["baseline"]]) for row in rows if row["baseline"] in known]
    pairs = [(row, other) for row, other in beside if row["steps"] == other["steps"]]
    times = {row["run"]: timed.times(row["run"]) for pair in pairs for row in pair}
    noise = disturbed_by(timed.tables["machine"])
    return TimedSetup(
        key=key,
        steps_per_epoch=0,
        runs=[timed.times(row["run"]) for row in rows],
        pairs=[(times[row["run"]], times[other["run"]]) for row, other in pairs],
        levels="",
        same_machine=on_same_machine(pairs),
        disturbed=list(disturbed(rows, [other for _, other in pairs], noise)),
        notes=tuple(_notes(timed, beside)),
    )


def _notes(timed: Timed, beside: Sequence[tuple[Row, Row]]) -> Iterator[str]:
    others = [(row, other) for row, other in beside if row["steps"] != other["steps"]]
    if others:
        row, other = others[0]
        yield f"{len(others)} of {len(beside)} baselines made other steps than their run, as {other['steps']} and not {row['steps']}, and are not compared with it"
    saved = [len(timed.runs[other["run"]].checkpoints) for _, other in beside]
    if any(saved):
        yield f"baselines saved too ({max(saved)} times at most): the paired estimate lacks what that cost"


def strategies(timed: Timed, tables: Tables) -> pd.DataFrame:
    """From the tables `checkpoint_cost` and `overhead`. `slowdown_s` is the probe's hidden slowdown beyond
    what the baseline takes longer in the same steps, `durable_s` the time until the engine said that
    it had finished, `memory_bytes` the peak above that at the start of a save."""
    found = [(key, _used(timed, key, rows)) for key, rows in timed.setups()]
    slowdowns = [_hidden(timed, used) for _, used in found]
    ratios = estimates([each.ratio for each in slowdowns])
    finished = estimates([_mean(used, "durable_s") for _, used in found])
    memory = estimates([_mean(used, "memory_bytes") for _, used in found])
    costs, overheads = (row_by(tables[name], SETUP) for name in ("checkpoint_cost", "overhead"))
    return ranked(
        {
            **key,
            "runs": used["run"].nunique(),
            **UNKNOWN_STRATEGY,
            "continued": 0,
            "checkpoints": len(used),
            **copied(costs[tuple(key.values())], "stall_s"),
            "waited": 0.0,
            **slowdown.estimate(ratio).columns("slowdown_s"),
            **whole.columns("durable_s"),
            "durable_checkpoints": int(used["durable_s"].notna().sum()),
            **copied(overheads[tuple(key.values())], "overhead"),
            **peak.columns("memory_bytes"),
            "bytes": used["bytes"].median(),
            "files": used["files"].median(),
        }
        for (key, used), slowdown, ratio, whole, peak in zip(
            found, slowdowns, ratios, finished, memory, strict=True
        )
    )


def _used(timed: Timed, key: Row, rows: Sequence[Row]) -> pd.DataFrame:
    """The checkpoints of a setup that its times are of: rows of `stall`, with more columns of `own_saves`."""
    stall = timed.tables["stall"]
    own = stall[stall["run"].isin([row["run"] for row in rows]) & ~stall["warmup"]]
    saves = timed.tables["own_saves"][["run", "step", "files", "memory_bytes", "written_back_s"]]
    return steady_or_all(own).merge(saves, on=["run", "step"])


def _hidden(timed: Timed, used: pd.DataFrame) -> Slowdown:
    """Of the first checkpoints of the runs, too, where it is not known of later ones."""
    runs = sorted(used["run"].unique())
    every = [known_hidden(timed.runs[run], timed.times(run)) for run in runs]
    later = [own.steady for own in every if len(own.steady.checkpoints)]
    told = later if used["steady"].all() and later else [own for own in every if len(own.checkpoints)]  # fmt: skip
    return Slowdown.of(told) if told else Slowdown(PerRepeat.ratio([], []), math.nan, 0)


def _mean(used: pd.DataFrame, column: str) -> PerRepeat:
    return mean_of_runs(used[used[column].notna()], column)


def decision_costs(timed: Timed, tables: Tables) -> pd.DataFrame:
    """From `strategies`, `overhead`, `machine`, `provenance` and `runs`: what a checkpoint costs is its stall and its hidden slowdown.

    A restart can go on from it when it was seen written back, or else when the engine said that it had finished. The restart is taken to last as long
    as from the start of a process to its first step, on the slowest rank.
    """
    chosen = representative(tables["strategies"])
    measured = tables["strategies"].assign(is_chosen=tables["strategies"].index.isin(chosen))
    rows, setups = row_by(measured, SETUP), list(timed.setups())
    overheads = row_by(tables["overhead"], SETUP)
    steps = _by_strategy(timed, _period_s, of_baselines=True)
    starts = _by_strategy(timed, _start_s, of_baselines=False)
    usable = estimates([_mean(_with_usable(_used(timed, *each)), "usable_s") for each in setups])
    return DECISION_COSTS.rows(
        {
            **{name: value for name, value in key.items() if name in DECISION_COSTS.names},
            "steps_per_epoch": 0,
            **steps[key["strategy"]].columns("step_s"),
            **copied(row, "stall_s"),
            **copied(row, "slowdown_s"),
            **until.columns("durable_s"),
            **until.columns("shared_durable_s"),
            **starts[key["strategy"]].columns("down_s"),
            **Estimate(0.0, UNKNOWN).columns("pause_s"),
            **Estimate(1.0, UNKNOWN).columns("slower"),
            **slower_everywhere(overheads[tuple(key.values())]).columns("slower_everywhere"),
            "survived": 0.0,
            "survived_of": None,
            "replaces": True,
            "shared_every": 1,
            "copied": False,
            "bytes": row["bytes"],
            "representative": row["is_chosen"],
            "growth": "",
            "down_from": BEGINS,
            "note": UNKNOWN_HIDDEN if math.isnan(row["slowdown_s"]) else "",
            "source": source_of(tables, str(key["measured_on"])),
        }
        for (key, _), until in zip(setups, usable, strict=True)
        for row in [rows[tuple(key.values())]]
    )


def _with_usable(used: pd.DataFrame) -> pd.DataFrame:
    told = used["written_back_s"].fillna(used["durable_s"]).fillna(used["stall_s"])
    return used.assign(usable_s=told.clip(lower=used["stall_s"]))


def _period_s(run: SeenRun) -> float:
    """Of a step without checkpoints."""
    return times_of(run).period_s


def _start_s(run: SeenRun) -> float:
    return math.nan if run.measures.start_s is None else run.measures.start_s


def _by_strategy(
    timed: Timed, value: Callable[[SeenRun], float], *, of_baselines: bool
) -> dict[str, Estimate]:
    """Of the runs of each strategy, or `of_baselines` that are timed, and of runs that have none; a run counts once."""
    found: dict[str, dict[str, float]] = {}
    for row in records(timed.rows[timed.rows["interval"] != str(NEVER)]):
        is_other = of_baselines and row["baseline"] in timed.runs
        run = timed.runs[row["baseline"] if is_other else row["run"]]
        found.setdefault(row["strategy"], {})[run.cell.id] = value(run)
    known = estimates([PerRepeat.mean(np.array(list(own.values()))) for own in found.values()])
    return dict(zip(found, known, strict=True))
