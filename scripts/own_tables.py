"""Make all tables of a study of an own training: from its runs, as the probe saw them, and from failure rates."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import write_tables
from ckptbench.decide.choices import Choices
from ckptbench.decide.decision import left_out
from ckptbench.decide.rates import read_rates
from ckptbench.own.record import OwnStudy
from ckptbench.own.seen import read_runs
from ckptbench.own.study import own_tables
from ckptbench.scripting import run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    options = _parse()

    def work() -> None:
        cells = OwnStudy.read(options.study).cells
        runs = read_runs(options.runs / cell.id for cell in cells)
        choices = Choices.parse(options.choices)
        tables = own_tables(runs, read_rates(options.rates), choices)
        for line in left_out(tables["decision_costs"], choices):
            log.warning("%s", line)
        write_tables(options.tables, tables)

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="the record of the study")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the run folders")
    parser.add_argument("--rates", type=Path, required=True, help="folder of the failure rates")
    parser.add_argument("--choices", required=True, help="JSON object: what to decide for")
    parser.add_argument("--tables", type=Path, required=True, help="folder to write the tables to")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
