"""Decide how often to checkpoint, with what, and how to recover: from the tables of a study, or from a file with costs."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.decide import COST_TABLES
from ckptbench.decide.choices import Choices
from ckptbench.decide.decision import decide, left_out
from ckptbench.decide.given import read_given
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.rates import read_rates
from ckptbench.decide.validate import VALIDATION, validation
from ckptbench.scripting import run_script

log = logging.getLogger("ckptbench")


def main() -> int:
    options = _parse()

    def work() -> None:
        rates = read_rates(options.rates)
        choices = Choices.parse(options.choices)
        if options.numbers:
            costs, checked = read_given(options.numbers), VALIDATION.rows([])
        else:
            study = read_tables(options.tables, COST_TABLES)
            costs, checked = decision_costs(study), validation(study)
        for line in left_out(costs, choices):
            log.warning("%s", line)
        write_tables(options.tables, {**decide(costs, rates, choices), "validation": checked})

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--rates", type=Path, required=True, help="folder of the failure rates")
    parser.add_argument("--choices", required=True, help="JSON object: what to decide for")
    parser.add_argument(
        "--numbers", type=Path, help="file with costs, instead of those of the tables"
    )
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
