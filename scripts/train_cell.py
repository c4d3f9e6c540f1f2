"""Train one cell and seal its run folder."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import sys
from pathlib import Path

from ckptbench import progress
from ckptbench.cells import Cell
from ckptbench.manifest import read_json
from ckptbench.plan import Plan, Training
from ckptbench.run import Execution, run_cell
from ckptbench.scripting import run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    options = _parse()
    cell = Cell.from_json(options.cell)
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
        resume=options.resume,
        keep_after_run=options.keep_after_run,
        timeout_seconds=options.run_minutes and 60 * options.run_minutes,
    )

    def work() -> None:
        if options.study is not None and options.study.exists():
            _log_progress(options.study, options.runs, cell.id)
        run_cell(plan, execution)

    return run_script(work, options.log)


def _log_progress(study: Path, runs: Path, running: str) -> None:
    measured = progress.measure(runs, read_json(study)["cells"], running)
    log.info("%s", measured.line(running, datetime.datetime.now()))


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
    parser.add_argument("--keep-after-run", type=int, default=0, help="checkpoint versions to keep")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the newest complete version"
    )
    parser.add_argument("--run-minutes", type=float, help="give the run up after this time")
    parser.add_argument(
        "--study", type=Path, help="JSON with the ids of all cells, for the progress line"
    )
    parser.add_argument(
        "--log", type=Path, help="the launcher's log; the ranks' go into a folder beside it"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
