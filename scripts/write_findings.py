"""Write what a study found, or what to do about it, in sentences that are made from tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.figures.findings import DECISION, TABLES, decision
from ckptbench.figures.findings.page import page
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()

    def work() -> None:
        if options.decision:
            text = decision.page(read_tables(options.tables, DECISION))
        else:
            text = page(read_tables(options.tables, TABLES))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--decision", action="store_true", help="only how often to checkpoint")
    parser.add_argument("--output", type=Path, required=True, help="the text file to write")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
