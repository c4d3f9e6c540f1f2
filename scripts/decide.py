"""Decide how often to checkpoint, with what, and how to recover: from the tables of a study, or from a file with costs."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.common.scripting import parser_of, run_script
from ckptbench.decide import COST_TABLES
from ckptbench.decide.choices import Choices
from ckptbench.decide.decision import decide, left_out
from ckptbench.decide.given import read_given
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.rates import read_rates
from ckptbench.decide.validate import VALIDATION, validation

log = logging.getLogger("ckptbench")


def main() -> int:
    parser = parser_of(__doc__, "--tables", "--rates", "--choices")
    parser.add_argument(
        "--numbers", type=Path, help="file with costs, instead of those of the tables"
    )
    options = parser.parse_args()

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


if __name__ == "__main__":
    sys.exit(main())
