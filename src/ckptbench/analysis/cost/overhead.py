"""The table `overhead`: what checkpoints cost, estimated against the baseline and from inside the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.estimates import (
    PAIRED,
    estimate_to_quote,
    in_run,
    in_run_steady,
    paired_ratio,
)
from ckptbench.analysis.cost.statistics import Estimate, note_of_one_repeat, with_intervals
from ckptbench.analysis.cost.times import RunTimes, run_times, with_valid_timing
from ckptbench.analysis.tables.columns import NOTE, REPEATS, SETUP, SETUP_COLUMNS, SYSTEM
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.analysis.tables.schema import Column, Table, with_ends
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.levels import LEVELS, SHARED
from ckptbench.matrix.registry import undisturbed_recovery

OVERHEAD = Table(
    "overhead",
    "One row per setup with checkpoints. Times are of the slowest rank of each epoch, without warm-up steps and evaluation.",
    SETUP,
    (
        *SETUP_COLUMNS,
        Column("steps_per_epoch", "integer", "1", "of every rank"),
        REPEATS,
        Column("paired_repeats", "integer", "1", "of these, repeats with a baseline"),
        Column("checkpoints", "integer", "1", "after the warm-up, over all repeats"),
        Column("time_s", "number", "s", "training time, mean over the paired repeats"),
        Column("baseline_s", "number", "s", "the same of the baseline"),
        *with_ends("paired", "1", "(time - baseline) / baseline over paired repeats"),
        *with_ends("in_run", "1", "(stalls + waits of the next save + slowdown) / (step time outside all saves x steps)"),
        *with_ends("overhead", "1", "the estimate to quote: `in_run`, or `paired` if the two contradict each other"),
        Column("overhead_from", "text", "", "`paired` or `in_run`"),
        Column("levels", "text", "", "number of checkpoints at each level; empty if all are only at `shared`"),
        *with_ends("in_run_steady", "1", "`in_run` if every checkpoint cost as much as in the steady state, as in a long training"),
        Column("agree", "verdict", "", "whether the two intervals overlap; missing if one is missing"),
        Column("disturbed", "flag", "", "whether a run or baseline was disturbed (table `machine`); the note says which"),
        NOTE,
    ),
)  # fmt: skip


SAME_PLACE = ("host", "device", "cores", "checkpoint_file_system")


def overhead(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `steps`, `epochs`, `checkpoints` and `machine`."""
    setups = list(_setups(tables))
    ratios = with_intervals(
        [paired_ratio(setup.pairs) for setup in setups], [setup.system for setup in setups]
    )
    inside = with_intervals([in_run(setup.runs) for setup in setups])
    steady = with_intervals([in_run_steady(setup.runs) for setup in setups])
    return OVERHEAD.rows(
        {**_row(setup, ratio.minus(1.0), own_inside), **own_steady.columns("in_run_steady")}
        for setup, ratio, own_inside, own_steady in zip(setups, ratios, inside, steady, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _TimedSetup:
    """The runs of one setup with valid timing, and the baseline of each that has one."""

    key: dict[str, Any]
    steps_per_epoch: int
    runs: list[RunTimes]
    pairs: list[tuple[RunTimes, RunTimes]]
    levels: str
    """How many checkpoints reached which level; empty where all reached SHARED alone."""
    same_machine: bool
    """Whether every baseline ran where its run did."""
    disturbed: list[str]
    """Which of the runs and baselines were disturbed by others, and how."""

    @property
    def system(self) -> tuple[Any, ...]:
        """Key of its baselines: setups with an equal key share them."""
        return system_of(self.key)


def _setups(tables: Mapping[str, pd.DataFrame]) -> Iterator[_TimedSetup]:
    valid = with_valid_timing(tables["runs"])
    times = run_times(tables, valid)
    baselines = baselines_of(valid)
    reached = _reached(tables["checkpoints"], valid)
    noise = _disturbed_by(tables["machine"])
    for key, group in groups(valid[valid["interval"] != str(NEVER)], SETUP):
        rows = records(group)
        pairs = [(row, baselines[row["run"]]) for row in rows if row["run"] in baselines]
        yield _TimedSetup(
            key=key,
            steps_per_epoch=rows[0]["steps_per_epoch"],
            runs=[times[row["run"]] for row in rows],
            pairs=[(times[row["run"]], times[baseline["run"]]) for row, baseline in pairs],
            levels=_counted([levels for row in rows for levels in reached.get(row["run"], [])]),
            same_machine=on_same_machine(pairs),
            disturbed=list(_disturbed(rows, [baseline for _, baseline in pairs], noise)),
        )


def _disturbed_by(machine: pd.DataFrame) -> dict[str, str]:
    """By disturbed run: what disturbed it."""
    rows = machine[machine["disturbed"].fillna(False).astype(bool)]
    return dict(zip(rows["run"], rows["by"], strict=True))


def _disturbed(
    runs: Iterable[dict[str, Any]], baselines: Iterable[dict[str, Any]], by: Mapping[str, str]
) -> Iterator[str]:
    """Which of these rows of the table `runs` were disturbed; `by` says by what, by run."""
    for what, rows in (("repeat", runs), ("the baseline of repeat", baselines)):
        for row in rows:
            if row["run"] in by:
                yield f"{what} {row['repeat']} ({by[row['run']]})"


def _reached(checkpoints: pd.DataFrame, runs: pd.DataFrame) -> dict[str, list[str]]:
    """By run the column `levels` of each checkpoint after the warm-up."""
    known = checkpoints.drop_duplicates(["run", "step"]).merge(
        runs[["run", "warmup_steps"]], on="run"
    )
    counted = known[known["step"] >= known["warmup_steps"]]
    return {str(run): list(own) for run, own in counted.groupby("run")["levels"]}


def _counted(levels: list[str]) -> str:
    """`memory 12, node 6, shared 3`, of the levels of each checkpoint; empty where that is SHARED alone."""
    if set(levels) <= {SHARED}:
        return ""
    each = [own.split("+") for own in levels]
    numbers = {level: sum(level in own for own in each) for level in LEVELS}
    return ", ".join(
        f"{level} {number}" for level, number in numbers.items() if number or level == SHARED
    )


def baselines_of(runs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """By run with checkpoints the row of its baseline, if that is among these rows of the table `runs`.

    CPU and GPU are never compared, whatever the cells have asked for.
    """
    is_baseline = runs["interval"] == str(NEVER)
    known = {(row["run"], row["measured_on"]): row for row in records(runs[is_baseline])}
    return {
        row["run"]: known[row["baseline"], row["measured_on"]]
        for row in records(runs[~is_baseline])
        if (row["baseline"], row["measured_on"]) in known
    }


def system_of(setup: dict[str, Any]) -> tuple[Any, ...]:
    """What a setup shares with its baselines: an elastic recovery too."""
    return (*(setup[name] for name in SYSTEM), undisturbed_recovery(setup["recovery_name"]))


def on_same_machine(pairs: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> bool:
    """Whether both runs of each pair ran in the same place. The pairs are rows of the table `runs`."""
    return all(row[name] == other[name] for row, other in pairs for name in SAME_PLACE)


def _row(setup: _TimedSetup, against_baseline: Estimate, inside: Estimate) -> dict[str, Any]:
    paired_runs = [run for run, _ in setup.pairs]
    told_by = estimate_to_quote(against_baseline, inside)
    return {
        **setup.key,
        "steps_per_epoch": setup.steps_per_epoch,
        "repeats": len(setup.runs),
        "paired_repeats": len(setup.pairs),
        "checkpoints": sum(len(run.checkpoints) for run in setup.runs),
        "levels": setup.levels,
        "time_s": np.mean([run.time_s for run in paired_runs or setup.runs]),
        "baseline_s": np.mean([baseline.time_s for _, baseline in setup.pairs] or [np.nan]),
        **against_baseline.columns("paired"),
        **inside.columns("in_run"),
        **(against_baseline if told_by == PAIRED else inside).columns("overhead"),
        "overhead_from": told_by,
        "agree": against_baseline.interval.overlaps(inside.interval),
        "disturbed": bool(setup.disturbed),
        "note": "; ".join(_notes(setup, against_baseline, inside)),
    }


def _notes(setup: _TimedSetup, against_baseline: Estimate, inside: Estimate) -> Iterator[str]:
    if not setup.pairs:
        yield "no baseline of the same repeat ran to its end: no paired estimate"
    elif len(setup.pairs) < len(setup.runs):
        yield f"{len(setup.runs) - len(setup.pairs)} of {len(setup.runs)} repeats have no baseline"
    if not setup.same_machine:
        yield "a baseline ran on another machine, device or file system than its run"
    if setup.disturbed:
        yield f"disturbed: {', '.join(setup.disturbed)}"
    if len(setup.runs) == 1:
        yield note_of_one_repeat(against_baseline, inside)
    if not any(len(run.checkpoints) for run in setup.runs):
        yield "no checkpoint after the warm-up: no in-run estimate"
    elif not all(len(run.outside_s) for run in setup.runs):
        yield "every step lies inside a background save: no in-run estimate"
    if setup.levels:
        yield f"checkpoints by the levels that they reached: {setup.levels}"
    if against_baseline.interval.overlaps(inside.interval) is False:
        yield (
            f"the estimates disagree: {_words(against_baseline)} against the baseline, which counts, "
            f"{_words(inside)} from inside the run"
        )


def _words(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{estimate.interval.lo:.1%}, {estimate.interval.hi:.1%}]"
