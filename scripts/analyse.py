"""Compute the derived tables, which answer the study's questions, from the collected tables."""

from __future__ import annotations

import argparse
import sys

from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.registry import COLLECTED, DERIVED
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.common.scripting import parser_of, run


def main(options: argparse.Namespace) -> None:
    tables = derive(read_tables(options.tables, COLLECTED, set_aside=True))
    write_tables(options.tables, {name: tables[name] for name in DERIVED})


if __name__ == "__main__":
    sys.exit(run(parser_of(__doc__, "--tables"), main))
