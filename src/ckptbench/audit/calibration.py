"""Calibration: a strategy that does nothing must measure 0, and one that stalls a known time must measure that time.

A small study on this machine: its cells train a NumPy network, and each run is launched, recorded, sealed, collected and
estimated as those of every study.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.statistics import Estimate, Interval
from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.grouping import records
from ckptbench.audit.check import Check, Question
from ckptbench.config.inputs import sizes_of
from ckptbench.inputs.datasets.dataset import Dataset, dataset_sha256
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.interval import Interval as Every
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NATIVE, NO_FORMAT, STRATEGIES
from ckptbench.matrix.training import Training
from ckptbench.run.plan import RunSpec

IMAGES = {"height": 32, "width": 32, "channels": 3, "classes": 512, "test_samples": 64}
BATCH, EPOCHS, WARMUP, KEEP = 64, 2, 5, 1
NULL = PluginSpec("null")
LOCK = "main.txt"
RUN_S = 6.0
"""Longest that the steps of one run may take."""
PILOT_STEPS, FEWEST_STEPS = 20, 20
RESOLVED, RESOLVED_S = 0.005, 0.001
"""Overhead and stall that the study does not claim to see: the recorder's cost, and the bookkeeping of a save."""
WIDEST, WIDEST_S = 0.05, 0.01
"""An interval that reaches further to a side says nothing: the machine is too noisy."""
NOISY = "inconclusive (noise, or too few repeats): close other programs and run the audit again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How long the calibration trains, and its known stall. The default takes a minute and a half."""

    repeats: int = 6
    steps_per_epoch: int = 480
    interval: int = 240
    """Steps between two saves. The commit behind a save, which is real, has no weight in so many."""
    stall_ms: int = 100

    @property
    def saves(self) -> int:
        """After the warm-up, of one run."""
        steps = EPOCHS * self.steps_per_epoch
        return sum(step > WARMUP for step in range(self.interval, steps + 1, self.interval))

    def within(self, step_s: float) -> Size:
        """With fewer steps between two saves, and as many saves, where steps of so many seconds would take too long."""
        between = self.steps_per_epoch // self.interval
        interval = int(RUN_S / (EPOCHS * between * step_s))
        interval = max(FEWEST_STEPS, min(self.interval, interval))
        return dataclasses.replace(self, steps_per_epoch=between * interval, interval=interval)

    @property
    def stall(self) -> PluginSpec:
        return PluginSpec.of("strategy", "stall", {"ms": self.stall_ms}, STRATEGIES["stall"])


def step_seconds(folder: Path, lock_sha256: str) -> float:
    """Of a step of the calibration on this machine: the median of short runs, which are made in `folder`."""
    short = Size(repeats=1, steps_per_epoch=PILOT_STEPS, interval=PILOT_STEPS, stall_ms=1)
    median: float = collected_runs(folder, lock_sha256, short)["steps"]["duration_s"].median()
    return median


def collected_runs(folder: Path, lock_sha256: str, size: Size) -> dict[str, pd.DataFrame]:
    """The collected tables of all runs, which are made in `folder`, on the file system of the study's checkpoints."""
    settings = {**IMAGES, "train_samples": BATCH * size.steps_per_epoch}
    prepare("synthetic", folder / "synthetic", settings)
    execution = Execution(python=Path(sys.executable), lock=LOCK, logs=folder / "logs")
    runs = []
    for repeat in range(size.repeats):
        cells = list(_cells(repeat, size))
        turned = repeat % len(cells)  # what drifts in the machine meets each in turn
        for cell in (*cells[turned:], *cells[:turned]):
            spec = _spec(cell, folder, lock_sha256)
            spec.run_folder.mkdir(parents=True)
            run_cell(spec, execution)
            runs.append(spec.run_folder)
    return collect(runs)


def _cells(repeat: int, size: Size) -> Iterator[Cell]:
    for strategy in (NATIVE, NULL, size.stall):
        is_baseline = strategy == NATIVE
        yield Cell(
            framework="numpy",
            model="linear",
            dataset="synthetic",
            ranks=1,
            batch_size=BATCH,
            epochs=EPOCHS,
            format=NO_FORMAT if is_baseline else "npz",
            interval=NEVER if is_baseline else Every.parse(f"s{size.interval}"),
            strategy=strategy,
            repeat=repeat,
        )


def _spec(cell: Cell, folder: Path, lock_sha256: str) -> RunSpec:
    dataset, run_folder = folder / cell.dataset, folder / "runs" / cell.id
    training = Training(
        seed=1,
        learning_rate=0.001,
        momentum=0.9,
        weight_decay=0.0,
        steps_per_epoch=None,
        test_samples=None,
        warmup_steps=WARMUP,
        keep_during_run=KEEP,
    )
    return RunSpec(
        cell=cell,
        training=training,
        dataset_folder=dataset,
        run_folder=run_folder,
        checkpoint_folder=run_folder / "checkpoints",
        dataset_sha256=dataset_sha256(dataset),
        lock_sha256=lock_sha256,
        sizes=sizes_of(cell.model, Dataset.open(dataset)),
    )


def checks_of(collected: Mapping[str, pd.DataFrame], size: Size) -> list[Check]:
    """Of both strategies. Each is a study of its own: intervals of small costs would widen those of large ones."""
    checks = []
    for strategy, name, stall_s in (
        (NULL, "a strategy that does nothing", 0.0),
        (size.stall, f"a strategy that stalls {size.stall_ms} ms", size.stall_ms / 1000),
    ):
        row, cost = estimated(collected, strategy)
        truth = size.saves * stall_s / row["baseline_s"]
        checks += [
            of_overhead(f"{name}: overhead against the baseline", row, "paired", truth),
            of_overhead(f"{name}: overhead from inside the run", row, "in_run", truth),
            of_stall(f"{name}: stall of one checkpoint", cost, stall_s),
        ]
    return checks


def estimated(
    collected: Mapping[str, pd.DataFrame], strategy: PluginSpec
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of the tables `overhead` and `strategies`, from the runs of a strategy and their baselines."""
    runs = collected["runs"]
    own = runs[(runs["strategy"] == strategy.label) | (runs["interval"] == str(NEVER))]["run"]
    tables = derive({name: frame[frame["run"].isin(own)] for name, frame in collected.items()})
    (row,), (cost,) = records(tables["overhead"]), records(tables["strategies"])
    return row, cost


def of_stall(subject: str, cost: Mapping[str, Any], truth: float) -> Check:
    question = Question(
        check="calibration",
        subject=subject,
        unit="s",
        limit=RESOLVED_S,
        holds="a known stall is measured as what it is",
        fails="stalls are measured wrongly here, or the machine stops processes for milliseconds: do not quote any",
        unknown=NOISY,
    )
    measured = Estimate(cost["stall_s"], Interval(cost["stall_s_lo"], cost["stall_s_hi"]))
    return question.truth(truth, measured, widest=WIDEST_S)


def of_overhead(subject: str, row: Mapping[str, Any], column: str, truth: float) -> Check:
    question = Question(
        check="calibration",
        subject=subject,
        limit=RESOLVED,
        holds="a known overhead is measured as what it is",
        fails="overheads are measured wrongly here, or the machine changed its speed meanwhile: run the audit again, and if it fails again quote none",
        unknown=NOISY,
    )
    measured = Estimate(row[column], Interval(row[f"{column}_lo"], row[f"{column}_hi"]))
    return question.truth(truth, measured, widest=WIDEST)
