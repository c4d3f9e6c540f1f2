"""Compute the derived tables, which answer the study's questions, from the collected tables."""

from __future__ import annotations

import argparse

from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.registry import COLLECTED, DERIVED
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--tables")


def main(options: argparse.Namespace) -> None:
    tables = derive(read_tables(options.tables, COLLECTED, set_aside=True))
    write_tables(options.tables, {name: tables[name] for name in DERIVED})
