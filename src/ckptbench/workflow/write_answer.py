"""Write the answer of a study, from its tables: one screen of text that says how often to checkpoint."""

from __future__ import annotations

import argparse

from ckptbench.analysis.tables.store import read_tables
from ckptbench.config.identity import config_of
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.report.answer.study import study_text
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--tables", "--given", "--output")


def main(options: argparse.Namespace) -> None:
    names = DECISION if options.given else (*DECISION, *STUDY_TABLES)
    tables = read_tables(options.tables, names, set_aside=True)
    config = "" if options.given else config_of(options.tables)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(study_text(tables, str(options.tables), config), encoding="utf-8")
