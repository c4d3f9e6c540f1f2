"""Write the answer of a study, from its tables: one screen of text that says how often to checkpoint."""

from __future__ import annotations

import argparse
import sys

from ckptbench.analysis.tables.store import read_tables
from ckptbench.common.scripting import parser_of, run, write_text
from ckptbench.config.identity import config_of
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.report.answer.study import study_text


def main(options: argparse.Namespace) -> None:
    names = DECISION if options.given else (*DECISION, *STUDY_TABLES)
    tables = read_tables(options.tables, names, set_aside=True)
    config = "" if options.given else config_of(options.tables)
    write_text(options.output, study_text(tables, str(options.tables), config))


if __name__ == "__main__":
    sys.exit(run(parser_of(__doc__, "--tables", "--given", "--output"), main))
