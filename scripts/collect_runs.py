"""Read run folders and write what they say as tables, one event a row."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.collect import collect
from ckptbench.analysis.store import write_tables
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()
    return run_script(lambda: write_tables(options.tables, collect(options.runs)), options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a sealed run")
    parser.add_argument("--tables", type=Path, required=True, help="folder to write the tables to")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
