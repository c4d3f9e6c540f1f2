"""Read run folders and write their contents as tables.

Give either the folders of the runs, or a study, the folder of its runs and the folder of its datasets. A study can have
more runs than fit on a command line.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import pandas as pd

from ckptbench.analysis.collect.asked import Asked
from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.tables.store import write_tables
from ckptbench.data.dataset import DESCRIPTION, dataset_sha256
from ckptbench.errors import RunFolderError
from ckptbench.scripting import run_script
from ckptbench.study.record import StudyRecord


def main() -> int:
    options = _parse()

    def work() -> None:
        write_tables(options.tables, _of_study(options) if options.study else collect(options.run))

    return run_script(work, options.log)


def _of_study(options: argparse.Namespace) -> dict[str, pd.DataFrame]:
    study = StudyRecord.read(options.study)
    if study.training is None:
        raise RunFolderError(
            f"{options.study}: training is missing; start the workflow again, which writes it anew"
        )
    folders = {cell.dataset: options.datasets / cell.dataset for cell in study.cells}
    # A user may have removed a dataset after the last run. Then the runs are only compared with one another.
    there = {name: folder for name, folder in folders.items() if (folder / DESCRIPTION).exists()}
    asked = Asked(
        training=dataclasses.asdict(study.training),
        datasets={name: dataset_sha256(folder) for name, folder in there.items()},
    )
    return collect([options.runs / cell.id for cell in study.cells], asked)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="*", metavar="RUN", help="folder of a sealed run")
    parser.add_argument("--study", type=Path, help="study.json, which lists the cells")
    parser.add_argument("--runs", type=Path, help="with --study: folder of the run folders")
    parser.add_argument("--datasets", type=Path, help="with --study: folder of the datasets")
    parser.add_argument("--tables", type=Path, required=True, help="folder to write the tables to")
    parser.add_argument("--log", type=Path, help="file that gets a copy of the log")
    options = parser.parse_args()
    of_study = [bool(each) for each in (options.study, options.runs, options.datasets)]
    if any(of_study) != all(of_study) or any(of_study) == bool(options.run):
        parser.error("give either RUN folders, or --study, --runs and --datasets")
    return options


if __name__ == "__main__":
    sys.exit(main())
