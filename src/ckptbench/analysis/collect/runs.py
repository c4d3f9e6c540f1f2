"""Run folders to the collected tables, and the first of these: the table `runs`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ckptbench.analysis.collect.expected import Expected, check_datasets, check_expected
from ckptbench.analysis.collect.run_folder import INCONSISTENT, Run, consistent_files
from ckptbench.analysis.tables.columns import (
    MACHINE_COLUMNS,
    REPEAT,
    RUN,
    SETUP_COLUMNS,
    STATE_COLUMNS,
    STRATEGY_COLUMNS,
)
from ckptbench.analysis.tables.registry import COLLECTED, TableEntry
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.matrix.cell import CHOSEN_LATER
from ckptbench.matrix.levels import SHARED, levels_of
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import STRATEGIES

RUNS = Table(
    "runs",
    "One row per run: one execution of a cell.",
    ("run",),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("reference", "text", "", "id of the cell's uninterrupted run"),
        Column("baseline", "text", "", "id of the cell's baseline"),
        *STRATEGY_COLUMNS,
        Column("seed", "integer", "1", "of weights, data order and random draws"),
        Column("attempts", "integer", "1", "1: never resumed"),
        Column("requeues", "integer", "1", "by its scheduler"),
        Column("timing_valid", "flag", "", "false if the run was resumed or requeued: timing tables leave it out"),
        Column("started", "time", "UTC", "when the first attempt began"),
        Column("ended", "time", "UTC", "when the last attempt ended"),
        Column("duration_s", "number", "s", "of the whole run, measured by its launcher"),
        Column("steps", "integer", "1", "of the whole run"),
        Column("steps_per_epoch", "integer", "1", "of every rank"),
        Column("warmup_steps", "integer", "1", "first steps, excluded from rates and overheads"),
        Column("wall_s", "number", "s", "from the start of the first step to the end of the last evaluation, on rank 0 or a surviving rank"),
        *STATE_COLUMNS,
        *MACHINE_COLUMNS,
        Column("nodes", "integer", "1", "machines with ranks"),
        Column("memory_bytes", "integer", "bytes", "main memory"),
        Column("gpus", "text", "", "models of all in the machine"),
        Column("kernel", "text", "", "its release"),
        Column("scheduler_job", "text", "", "its id; missing without a scheduler"),
        Column("lock_sha256", "text", "", "of the environment's lock"),
        Column("dirty", "verdict", "", "whether the source had uncommitted changes"),
        Column("versions", "text", "", "JSON object: version by package"),
    ),
)  # fmt: skip


def collect(folders: Iterable[Path], expected: Expected | None = None) -> dict[str, pd.DataFrame]:
    """The collected tables by name. Raises RunFolderError at the first folder that is not a result.

    `expected` is what every run of a study must agree with. None: the folders are those of no study.
    """
    found = sorted((Run.read(folder) for folder in folders), key=lambda run: run.cell.id)
    for run in found:
        check_expected(run, expected)
    check_datasets(found)
    return {name: _filled(entry, found) for name, entry in COLLECTED.items()}


def _filled(entry: TableEntry, found: Sequence[Run]) -> pd.DataFrame:
    """One table of all runs. Raises RunFolderError with the run of which it cannot be made."""
    try:
        return entry.fill(found)
    except INCONSISTENT:
        for run in found:
            with consistent_files(run.folder):
                entry.fill([run])
        raise  # each run alone is well


def runs(found: Sequence[Run]) -> pd.DataFrame:
    """From the manifests."""
    return RUNS.rows(_row(run) for run in found)


def _row(run: Run) -> dict[str, Any]:
    manifest, host = run.manifest, run.manifest["host"]
    return {
        "run": run.cell.id,
        **CHOSEN_LATER,
        **run.cell.to_json(),
        **run.cell.strategy.columns("strategy"),
        "reference": run.cell.reference.id,
        "blocking": STRATEGIES[run.cell.strategy.name].blocking,
        "shared_every": levels_of(run.cell.strategy).get(SHARED, 0),
        "baseline": run.cell.baseline.id,
        **{
            name: manifest[name]
            for name in ("seed", "measured_on", "attempts", "requeues", "device")
        },
        **(run.cell.faults if run.cell.is_struck else PluginSpec(run.cell.history)).columns(
            "history"
        ),
        **run.cell.recovery.columns("recovery"),
        "timing_valid": not run.interrupted and not run.cell.is_struck,
        "started": pd.Timestamp(manifest["started"]),
        "ended": pd.Timestamp(manifest["ended"]),
        "duration_s": manifest["duration_s"],
        "wall_s": _wall_s(run),
        "steps": run.steps,
        "steps_per_epoch": run.steps_per_epoch,
        "warmup_steps": run.warmup_steps,
        "state_second_moments_bytes": 0,  # of earlier versions, which had SGD alone
        **{f"state_{name}_bytes": size for name, size in manifest["state_bytes"].items()},
        **{name: value for name, value in host.items() if name != "gpus"},
        "gpus": ", ".join(host["gpus"]),
        "nodes": len(set(manifest["hosts"])),
        "lock_sha256": manifest["lock_sha256"],
        **manifest["source"],
        "versions": json.dumps(manifest["versions"], sort_keys=True),
    }


def _wall_s(run: Run) -> float:
    """Processes may have run on different hosts, so each end is taken by the clock of the day."""
    began = min(
        int(steps.start_ns[0]) for each in run.segments if len((steps := each.steps()).index)
    )
    ended = max(at for each in run.segments for at in each.unix_ns(each.process.trained_ns))
    return (ended - began) / 1e9
