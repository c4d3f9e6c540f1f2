"""Write the answer of a study, from its tables: one screen of text that says how often to checkpoint."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.tables.store import read_tables
from ckptbench.answer import DECISION, STUDY_TABLES
from ckptbench.answer.study import study_text
from ckptbench.own.answer import own_text
from ckptbench.own.made import ANSWERED
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()

    def work() -> None:
        names = DECISION if options.given else (*DECISION, *STUDY_TABLES)
        tables = read_tables(options.tables, ANSWERED if options.own else names)
        text = (own_text if options.own else study_text)(tables, str(options.tables))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")

    return run_script(work, options.log)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--given", action="store_true", help="the costs are a user's, of no study")
    parser.add_argument("--own", action="store_true", help="the tables are of an own training")
    parser.add_argument("--output", type=Path, required=True, help="the text file to write")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
