"""Read run folders and write their contents as tables.

Give either the folders of the runs, or a study and the folder of its runs. A study can have more runs than fit on a
command line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.tables.store import write_tables
from ckptbench.scripting import run_script
from ckptbench.study.record import StudyRecord


def main() -> int:
    options = _parse()

    def work() -> None:
        write_tables(options.tables, collect(_folders(options)))

    return run_script(work, options.log)


def _folders(options: argparse.Namespace) -> list[Path]:
    if options.study is None:
        return list(options.run)
    return [options.runs / cell.id for cell in StudyRecord.read(options.study).cells]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="*", metavar="RUN", help="folder of a sealed run")
    parser.add_argument("--study", type=Path, help="study.json, which lists the cells")
    parser.add_argument("--runs", type=Path, help="with --study: folder of the run folders")
    parser.add_argument("--tables", type=Path, required=True, help="folder to write the tables to")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    options = parser.parse_args()
    if bool(options.run) == bool(options.study) or bool(options.study) != bool(options.runs):
        parser.error("give either RUN folders, or --study and --runs")
    return options


if __name__ == "__main__":
    sys.exit(main())
