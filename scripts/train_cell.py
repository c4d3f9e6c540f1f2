"""Train one cell and seal its run folder."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import sys
from pathlib import Path

from ckptbench import progress
from ckptbench.allocation import scheduler_job, was_requeued
from ckptbench.cells import Cell
from ckptbench.manifest import read_json
from ckptbench.plan import Plan, Training
from ckptbench.run import Execution, run_cell
from ckptbench.scripting import run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    options = _parse()
    cell = Cell.from_json(options.cell)
    study = read_json(options.study) if options.study else {}
    plan = Plan(
        cell=cell,
        training=Training(**options.training),
        dataset_folder=options.dataset.resolve(),
        run_folder=(options.runs / cell.id).resolve(),
        checkpoint_folder=(
            (options.checkpoints or options.runs) / cell.id / "checkpoints"
        ).resolve(),
    )
    execution = Execution(
        python=(options.environment / "bin" / "python").absolute(),
        lock=options.lock,
        logs=(options.log.with_suffix("") if options.log else plan.run_folder / "logs").absolute(),
        resume=options.resume or study.get("resume", False),
        keep_after_run=study.get("keep_after_run", 0),
        timeout_seconds=60 * study["run_minutes"] if study.get("run_minutes") else None,
    )

    def work() -> None:
        if "cells" in study:
            log.info("%s", _progress(options.runs, study["cells"], cell.id))
        run_cell(plan, execution)

    return run_script(work, options.log, append=was_requeued(os.environ) is True)


def _progress(runs: Path, cells: list[str], running: str) -> str:
    measured = progress.measure(runs, cells, running)
    if scheduler_job(os.environ) is None:
        return measured.line(running, datetime.datetime.now())
    return measured.line_among_others(running)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", type=json.loads, required=True, help="the cell, as JSON")
    parser.add_argument("--training", type=json.loads, required=True, help="how it trains, as JSON")
    parser.add_argument("--dataset", type=Path, required=True, help="a prepared dataset's folder")
    parser.add_argument(
        "--environment", type=Path, required=True, help="the framework's environment"
    )
    parser.add_argument("--lock", type=Path, required=True, help="the lock it was made from")
    parser.add_argument("--runs", type=Path, required=True, help="the folder of run folders")
    parser.add_argument(
        "--checkpoints", type=Path, help="write checkpoints below this folder instead"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the newest complete version"
    )
    parser.add_argument(
        "--study", type=Path, help="results/study.json: progress, limits, what to keep"
    )
    parser.add_argument(
        "--log", type=Path, help="the launcher's log; the ranks' go into a folder beside it"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
