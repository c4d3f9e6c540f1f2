"""Write docs/findings.md: the findings of the published studies, held against the tables of studies that were run."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.report.answer.published import TABLES, published


def add_options(parser: argparse.ArgumentParser) -> None:
    folders = "folders of tables, one a study"
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help=folders)


def main(options: argparse.Namespace) -> None:
    print(published([read_tables(folder, TABLES) for folder in options.tables]))
