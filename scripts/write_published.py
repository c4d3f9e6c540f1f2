"""Write docs/findings.md: the findings of the published studies, held against the tables of studies that were run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.common.scripting import run_script
from ckptbench.report.answer.published import TABLES, published


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", type=Path, nargs="+", required=True, help="folders of tables, one a study"
    )
    options = parser.parse_args()
    return run_script(
        lambda: print(published([read_tables(folder, TABLES) for folder in options.tables])), None
    )


if __name__ == "__main__":
    sys.exit(main())
