"""Compute the derived tables, which answer the study's questions, from the collected tables."""

from __future__ import annotations

import sys

from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.registry import COLLECTED
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.common.scripting import parser_of, run_script


def main() -> int:
    options = parser_of(__doc__, "--tables").parse_args()

    def work() -> None:
        write_tables(options.tables, derive(read_tables(options.tables, COLLECTED)))

    return run_script(work, options.log)


if __name__ == "__main__":
    sys.exit(main())
