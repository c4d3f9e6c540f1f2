"""Write the page to ask "what if": one HTML file that computes in the browser and asks the network for nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.decide.choices import Choices
from ckptbench.decide.rates import read_rates
from ckptbench.page.html import page
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()

    def work() -> None:
        costs = read_tables(options.tables, ["decision_costs"])["decision_costs"]
        answer = options.answer.read_text(encoding="utf-8") if options.answer else ""
        text = page(costs, read_rates(options.rates), Choices.parse(options.choices), answer=answer)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--rates", type=Path, required=True, help="folder of the failure rates")
    parser.add_argument("--choices", required=True, help="JSON object: what to decide for")
    parser.add_argument("--answer", type=Path, help="text that the page begins with")
    parser.add_argument("--output", type=Path, required=True, help="the HTML file to write")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
