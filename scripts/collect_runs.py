"""Read run folders and write what they say as tables, one event a row.

Give the folders themselves, or a study and the folder of its runs: a study can have more runs than a command
line holds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ckptbench.analysis.collect import collect
from ckptbench.analysis.store import write_tables
from ckptbench.manifest import read_json
from ckptbench.scripting import run_script


def main() -> int:
    options = _parse()

    def work() -> None:
        write_tables(options.tables, collect(_folders(options)))

    return run_script(work, options.log)


def _folders(options: argparse.Namespace) -> list[Path]:
    if options.study is None:
        return list(options.run)
    return [options.runs / cell_id for cell_id in read_json(options.study)["cells"]]


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
