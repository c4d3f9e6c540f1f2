"""Calibration: a strategy that does nothing must measure 0, and one that stalls a known time must measure that time.

Short trainings of a NumPy network go through what every run goes through: the training loop, the wrapper around each
strategy, the line to the launcher, the recorder, the seal, the reader of run folders and the tables. Only the processes
are left out: all runs are made in this one, one after the other.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.statistics import Estimate, Interval
from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.grouping import records
from ckptbench.audit import disturbance, parts
from ckptbench.audit.check import Check, Words, against_truth
from ckptbench.data.sources import prepare
from ckptbench.launch.launcher_trace import LauncherTrace
from ckptbench.launch.manifest import close_manifest, measured, opening_manifest
from ckptbench.machine.clock import Instant, clock
from ckptbench.matrix.catalogue import NO_FORMAT
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.interval import Interval as Every
from ckptbench.matrix.variant import Variant
from ckptbench.runs.plan import Plan
from ckptbench.runs.seal import seal
from ckptbench.runs.training import Training
from ckptbench.study.inputs import with_inputs
from ckptbench.training.rank import run_rank
from ckptbench.world.control import ControlServer
from ckptbench.world.link import Link
from ckptbench.world.seats import Place, seats_of
from ckptbench.world.variables import LAUNCHED

IMAGES = {"height": 32, "width": 32, "channels": 3, "classes": 512, "test_samples": 64}
BATCH, EPOCHS, WARMUP, KEEP = 64, 2, 5, 1
NODE = "here"
RESOLVED = 0.005
"""Overhead that the study does not claim to see: what the recorder itself may cost."""
RESOLVED_S = 0.001
"""Stall that it does not claim to see: opening the staging folder and the bookkeeping of a save."""
WIDEST, WIDEST_S = 0.05, 0.01
"""An interval that reaches further to a side says nothing: the machine is too noisy."""
NOISY = "too noisy to tell, or too few repeats: close other programs and run the audit again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How long the calibration trains. The default takes less than a minute.

    Steps take some 10 ms, so a save every 80 steps leaves the commit behind it, which is real, no weight.
    """

    repeats: int = 6
    steps_per_epoch: int = 160
    interval: int = 80
    """Steps between two saves."""

    @property
    def saves(self) -> int:
        """After the warm-up, of one run."""
        return sum(step > WARMUP for step in range(self.interval, self.steps + 1, self.interval))

    @property
    def steps(self) -> int:
        return EPOCHS * self.steps_per_epoch


def calibrate(folder: Path, lock: Path, size: Size | None = None) -> list[Check]:
    """Train in `folder`, which is on the file system of the study's checkpoints."""
    size = size or Size()
    with parts.registered():
        collected = collected_runs(folder, lock, size)
        return [*checks_of(collected, size), *disturbance.checks(collected, "the calibration")]


def collected_runs(folder: Path, lock: Path, size: Size) -> dict[str, pd.DataFrame]:
    """The collected tables of all runs, which are made here."""
    settings = {**IMAGES, "train_samples": BATCH * size.steps_per_epoch}
    prepare("synthetic", folder / "synthetic", settings)
    runs = []
    for repeat in range(size.repeats):
        cells = list(_cells(repeat, size))
        turned = repeat % len(cells)  # what drifts in the machine meets each in turn
        for cell in (*cells[turned:], *cells[:turned]):
            runs.append(_run(cell, folder, lock))
    return collect(runs)


def _cells(repeat: int, size: Size) -> Iterator[Cell]:
    for strategy in ("native", parts.NOTHING, parts.STALLING):
        baseline = strategy == "native"
        yield Cell(
            framework=parts.FRAMEWORK,
            model=parts.MODEL,
            dataset="synthetic",
            ranks=1,
            batch_size=BATCH,
            epochs=EPOCHS,
            format=NO_FORMAT if baseline else parts.FORMAT,
            interval=Every.parse("never" if baseline else f"s{size.interval}"),
            strategy=Variant(strategy),
            repeat=repeat,
        )


def _run(cell: Cell, folder: Path, lock: Path) -> Path:
    """Train one cell and seal its run folder; returns it."""
    run_folder = folder / "runs" / cell.id
    run_folder.mkdir(parents=True)
    plan = Plan(
        cell=cell,
        training=Training(
            seed=1,
            learning_rate=0.001,
            momentum=0.9,
            weight_decay=0.0,
            steps_per_epoch=None,
            test_samples=None,
            warmup_steps=WARMUP,
            keep_during_run=KEEP,
        ),
        dataset_folder=folder / cell.dataset,
        run_folder=run_folder,
        checkpoint_folder=run_folder / "checkpoints",
    )
    plan = with_inputs(dataclasses.replace(plan, run_id=uuid.uuid4().hex), lock)
    plan.write()
    manifest: dict[str, Any] = {**opening_manifest(plan, lock.name), "requeues": 0}
    os.environ[LAUNCHED] = str(Instant.now())
    with closing(LauncherTrace(plan)) as seen, closing(_server()) as server:
        seen.begins(plan.attempt)
        # The link is closed first, whatever happens: a rank whose launcher is gone ends its process.
        with closing(Link.open(server.address, server.token, rank=0, node=NODE)) as link:
            link.meet(rank=0, node=NODE, device="cpu")
            place = Place(
                rank=0, world_size=1, local_rank=0, node=NODE, threads=1, addresses=link.addresses
            )
            run_rank(plan, place, link, clock())
        seen.completed(plan.attempt)
    close_manifest(plan, manifest | measured(plan), status="complete", error=None)
    seal(run_folder, cell.ranks)
    return run_folder


def _server() -> ControlServer:
    server = ControlServer(seats_of([NODE]), host="127.0.0.1")
    server.serve()
    return server


def checks_of(collected: Mapping[str, pd.DataFrame], size: Size) -> list[Check]:
    """Of both strategies. Each is a study of its own: intervals of small costs would widen those of large ones."""
    checks = []
    for strategy, name, stall_s in (
        (parts.NOTHING, "a strategy that does nothing", 0.0),
        (parts.STALLING, f"a strategy that stalls {1000 * parts.STALL_S:g} ms", parts.STALL_S),
    ):
        row, cost = _estimated(collected, strategy)
        truth = size.saves * stall_s / row["baseline_s"]
        checks += [
            _of_overhead(f"{name}: overhead against the baseline", row, "paired", truth),
            _of_overhead(f"{name}: overhead from inside the run", row, "in_run", truth),
            _of_stall(f"{name}: stall of one checkpoint", cost, stall_s),
        ]
    return checks


def _estimated(
    collected: Mapping[str, pd.DataFrame], strategy: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of the tables `overhead` and `strategies`, from the runs of a strategy and their baselines."""
    runs = collected["runs"]
    own = runs[(runs["strategy"] == strategy) | (runs["interval"] == str(NEVER))]["run"]
    tables = {name: frame[frame["run"].isin(own)] for name, frame in collected.items()}
    tables |= derive(tables)
    (row,), (cost,) = records(tables["overhead"]), records(tables["strategies"])
    return row, cost


def _of_stall(subject: str, cost: Mapping[str, Any], truth: float) -> Check:
    return against_truth(
        "calibration",
        subject,
        Estimate(cost["stall_s"], Interval(cost["stall_low_s"], cost["stall_high_s"])),
        truth=truth,
        limit=RESOLVED_S,
        widest=WIDEST_S,
        unit="s",
        words=Words(
            holds="a known stall is measured as what it is",
            fails="stalls are measured wrongly here, or the machine stops processes for milliseconds: do not quote any",
            unknown=NOISY,
        ),
    )


def _of_overhead(subject: str, row: Mapping[str, Any], column: str, truth: float) -> Check:
    return against_truth(
        "calibration",
        subject,
        Estimate(row[column], Interval(row[f"{column}_lo"], row[f"{column}_hi"])),
        truth=truth,
        limit=RESOLVED,
        widest=WIDEST,
        unit="1",
        words=Words(
            holds="a known overhead is measured as what it is",
            fails="overheads are measured wrongly here, or the machine changed its speed meanwhile: run the audit again, and if it fails again quote none",
            unknown=NOISY,
        ),
    )
