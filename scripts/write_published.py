"""Write docs/findings.md: the findings of the published studies, held against the tables of studies that were run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.common.scripting import parser_of, run
from ckptbench.report.answer.published import TABLES, published


def main(options: argparse.Namespace) -> None:
    print(published([read_tables(folder, TABLES) for folder in options.tables]))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    folders = "folders of tables, one a study"
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help=folders)
    return parser


if __name__ == "__main__":
    sys.exit(run(_parser(), main))
