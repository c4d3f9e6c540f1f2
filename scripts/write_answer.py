"""Write the answer of a study, from its tables: one screen of text that says how often to checkpoint."""

from __future__ import annotations

import argparse
import sys

from ckptbench.analysis.tables.store import read_tables
from ckptbench.common.scripting import parser_of, run, write_text
from ckptbench.config.identity import config_of
from ckptbench.own.answer import own_text
from ckptbench.own.made import ANSWERED
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.report.answer.study import study_text


def main(options: argparse.Namespace) -> None:
    names = DECISION if options.given else (*DECISION, *STUDY_TABLES)
    tables = read_tables(options.tables, ANSWERED if options.own else names, set_aside=True)
    if options.own:
        text = own_text(tables, str(options.tables))
    else:
        config = "" if options.given else config_of(options.tables)
        text = study_text(tables, str(options.tables), config)
    write_text(options.output, text)


if __name__ == "__main__":
    sys.exit(run(parser_of(__doc__, "--tables", "--own", "--given", "--output"), main))
