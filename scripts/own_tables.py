"""Make all tables of a study of an own training: from its runs, as the probe saw them, and from failure rates."""

from __future__ import annotations

import argparse
import logging
import sys

from ckptbench.analysis.tables.store import write_tables
from ckptbench.common.scripting import parser_of, run
from ckptbench.config.decision import DecisionSection
from ckptbench.decide.decision import left_out
from ckptbench.decide.rates import read_rates
from ckptbench.own.record import OwnStudy, check_asked
from ckptbench.own.seen import read_runs
from ckptbench.own.study import own_tables

log = logging.getLogger("ckptbench")


def main(options: argparse.Namespace) -> None:
    cells = OwnStudy.read(options.study).cells
    for cell in cells:
        check_asked(options.runs / cell.id, cell)
    runs = read_runs(options.runs / cell.id for cell in cells)
    choices = DecisionSection.model_validate_json(options.choices)
    tables = own_tables(runs, read_rates(options.rates), choices)
    for line in left_out(tables["decision_costs"], choices):
        log.warning("%s", line)
    write_tables(options.tables, tables)


if __name__ == "__main__":
    sys.exit(run(parser_of(__doc__, "--study", "--runs", "--rates", "--choices", "--tables"), main))
