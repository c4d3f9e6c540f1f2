"""Train one cell and seal its run folder."""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ckptbench.common.errors import LaunchError
from ckptbench.common.objects import place_of
from ckptbench.common.remedies import lost_link
from ckptbench.config.inputs import sizes_of
from ckptbench.config.record import StudyRecord
from ckptbench.inputs.datasets.dataset import Dataset, dataset_sha256
from ckptbench.inputs.datasets.sources import changes, source_of
from ckptbench.inputs.environments.folder import installed_sha256
from ckptbench.inputs.environments.lock_file import pinned_sha256
from ckptbench.launch.allocation import was_requeued
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.training import Training
from ckptbench.run.failure import Failure
from ckptbench.run.layout import SEAL
from ckptbench.run.plan import RunSpec
from ckptbench.workflow.frame import add_shared

log = logging.getLogger("ckptbench")

MEMORY_FOLDER = "/dev/shm"
NEEDED = {
    "--dataset": "a prepared dataset's folder",
    "--environment": "the framework's environment",
    "--lock": "the lock it was made from",
}
MORE = {
    "--memory-folder": f"in the memory of every node; default: {MEMORY_FOLDER}",
    "--node-folder": "on a disk of every node; default: the one for temporary files",
    "--study": "results/study.json: progress, limits, what to keep",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--cell", "--runs", "--parent")
    parser.add_argument("--training", type=json.loads, required=True, help="how it trains, as JSON")
    for name, meaning in NEEDED.items():
        parser.add_argument(name, type=Path, required=True, help=meaning)
    parser.add_argument("--packages", help="SHA-256 that the environment must have")
    parser.add_argument("--settings", type=json.loads, help="those of the dataset, as JSON")
    storage = "folder for checkpoints, or s3://BUCKET/PREFIX; default: that of --runs"
    parser.add_argument("--checkpoints", type=place_of, help=storage)
    for name, meaning in MORE.items():
        parser.add_argument(name, type=Path, help=meaning)
    failures = "those that the cell's list names, as JSON"
    parser.add_argument("--failures", type=json.loads, default=[], help=failures)
    again = "go on from the newest complete version"
    parser.add_argument("--resume", action="store_true", help=again)
    parser.set_defaults(append=was_requeued(os.environ) is True)


def main(options: argparse.Namespace) -> None:
    cell = Cell.from_json(options.cell)
    study = StudyRecord.read(options.study) if options.study else StudyRecord()
    if options.packages is not None:
        _check_environment(options.environment, options.packages)
    if options.settings is not None:
        _check_dataset(options.dataset, cell.dataset, options.settings)
    checkpoints = (options.checkpoints or options.runs) / cell.id / "checkpoints"
    if isinstance(checkpoints, Path):
        if lost := lost_link(checkpoints):  # resolving it would make the folder, on another disk
            raise LaunchError(f"no checkpoint can be written to {checkpoints}: {lost}")
        checkpoints = checkpoints.resolve()
    spec = RunSpec(
        cell=cell,
        training=Training(**options.training),
        dataset_folder=options.dataset.resolve(),
        run_folder=(options.runs / cell.id).resolve(),
        checkpoint_folder=checkpoints,
        memory_folder=options.memory_folder or Path(MEMORY_FOLDER),
        node_folder=options.node_folder or Path(tempfile.gettempdir()),
        dataset_sha256=dataset_sha256(options.dataset),
        lock_sha256=pinned_sha256(options.lock),
        sizes=sizes_of(cell.model, Dataset.open(options.dataset)),
        listed=tuple(map(Failure.from_json, options.failures)),
    )
    execution = Execution(
        python=(options.environment / "bin" / "python").absolute(),
        lock=options.lock.name,
        environment_sha256=installed_sha256(options.environment),
        logs=(options.log.with_suffix("") if options.log else spec.run_folder / "logs").absolute(),
        resume=options.resume or study.resume,
        keep_after_run=study.keep_after_run,
        timeout_seconds=study.timeout_seconds,
        repeat=study.repeat,
        levels={
            "memory_folder": _named(options.memory_folder),
            "node_folder": _named(options.node_folder),
        },
        parent=options.parent,
    )
    if study.cells:
        log.info("%s", _progress(options.runs, study.cells, cell))
    run_cell(spec, execution)


def _check_environment(folder: Path, wanted: str) -> None:
    """Raises LaunchError where the environment was made from another lock, and nobody noted it for Snakemake to see."""
    if installed_sha256(folder) != wanted:
        raise LaunchError(
            f"{folder} was made from another lock than there is now; make it again: --forcerun {folder}/ready.json"
        )


def _check_dataset(folder: Path, name: str, settings: dict[str, object]) -> None:
    """Raises LaunchError where the dataset was made from other settings, and nobody noted it for Snakemake to see."""
    if changed := changes(folder, source_of(name, settings)):
        raise LaunchError(
            f"{folder} was made from other {', '.join(changed)} than there is now; remove it to make it again"
        )


def _named(folder: Path | None) -> str | None:
    return None if folder is None else str(folder)


def _progress(runs: Path, cells: Sequence[Cell], running: Cell) -> str:
    done = sum(cell != running and (runs / cell.id / SEAL).exists() for cell in cells)
    return f"cells: {done} done, {len(cells) - done} to do or running, among them {running.id}"
