"""Write the page to ask "what if": one HTML file that computes in the browser and asks the network for nothing."""

from __future__ import annotations

import argparse
import sys

from ckptbench.analysis.tables.store import read_tables
from ckptbench.common.scripting import parser_of, run, write_text
from ckptbench.config.decision import DecisionSection
from ckptbench.decide.rates import read_rates
from ckptbench.report.page.html import page


def main(options: argparse.Namespace) -> None:
    costs = read_tables(options.tables, ["decision_costs"], set_aside=True)["decision_costs"]
    answer = options.answer.read_text(encoding="utf-8") if options.answer else ""
    text = page(
        costs,
        read_rates(options.rates),
        DecisionSection.model_validate_json(options.choices),
        answer=answer,
    )
    write_text(options.output, text)


if __name__ == "__main__":
    sys.exit(
        run(parser_of(__doc__, "--tables", "--rates", "--choices", "--answer", "--output"), main)
    )
