"""Derive from the collected tables those that answer the study's questions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.derive import derive
from ckptbench.analysis.raw import RAW
from ckptbench.analysis.store import read_tables, write_tables
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()

    def work() -> None:
        write_tables(options.tables, derive(read_tables(options.tables, RAW)))

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", type=Path, required=True, help="folder of the collected tables; gets the others"
    )
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
