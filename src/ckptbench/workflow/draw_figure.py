"""Draw one figure from the tables of a study, as PDF and PNG."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.files import write_figure
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--tables")
    parser.add_argument("figure", choices=FIGURES, help="which figure")
    stem = "where to write, without .pdf and .png"
    parser.add_argument("--output-stem", type=Path, required=True, help=stem)


def main(options: argparse.Namespace) -> None:
    write_figure(options.figure, options.tables, options.output_stem)
