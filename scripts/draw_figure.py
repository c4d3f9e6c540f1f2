"""Draw one figure from the tables of a study, as PDF and PNG."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.common.scripting import parser_of, run
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.files import write_figure


def main(options: argparse.Namespace) -> None:
    write_figure(options.figure, options.tables, options.output_stem)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, "--tables")
    parser.add_argument("figure", choices=FIGURES, help="which figure")
    stem = "where to write, without .pdf and .png"
    parser.add_argument("--output-stem", type=Path, required=True, help=stem)
    return parser


if __name__ == "__main__":
    sys.exit(run(_parser(), main))
