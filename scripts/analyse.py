"""Compute the derived tables, which answer the study's questions, from the collected tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.registry import COLLECTED
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()

    def work() -> None:
        write_tables(options.tables, derive(read_tables(options.tables, COLLECTED)))

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", type=Path, required=True, help="folder of all tables: read and written"
    )
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
