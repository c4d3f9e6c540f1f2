"""Check one trainer for one thing."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckptbench.common.processes import die_with_parent
from ckptbench.config.trainers import CHECKS
from ckptbench.trainers.cell import run_cell
from ckptbench.trainers.trainer import row_of
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--parent", "--output")
    parser.add_argument("row", help="the trainer's folder, or that with a setting's name")
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--trainers", type=Path, required=True, help="folder of the trainers")
    parser.add_argument("--environment", type=Path, required=True, help="in which it trains")
    parser.add_argument("--minutes", type=float, default=15.0, help="limit; default: %(default)s")


def main(options: argparse.Namespace) -> None:
    die_with_parent(options.parent)
    row = row_of(options.trainers, options.row)
    run_cell(row, options.check, options.environment.absolute(), options.minutes, options.output)
