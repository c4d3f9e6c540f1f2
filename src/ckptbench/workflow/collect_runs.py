"""Read the run folders of a study and write their contents as tables."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from ckptbench.analysis.collect.expected import Expected
from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.tables.store import write_tables
from ckptbench.common.errors import RunFolderError
from ckptbench.config.identity import marking
from ckptbench.config.record import StudyRecord
from ckptbench.inputs.datasets.dataset import DESCRIPTION, dataset_sha256
from ckptbench.matrix.training import proven_by
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--study", "--runs", "--tables", "--datasets", "--mark")


def main(options: argparse.Namespace) -> None:
    study = StudyRecord.read(options.study)
    if study.training is None:
        raise RunFolderError(
            f"{options.study}: training is missing; start the workflow again, which rewrites it"
        )
    expected = Expected(
        training=dataclasses.asdict(study.training),
        proven=proven_by(study.cells),
        listed=study.listed,
        datasets=_digests(options.datasets, {cell.dataset for cell in study.cells}),
    )
    folders = [options.runs / cell.id for cell in study.cells]
    tables = collect(folders, expected)
    with marking(options.mark, study.words):
        write_tables(options.tables, tables)


def _digests(folder: Path, names: set[str]) -> dict[str, str]:
    """Of the datasets that are there. One may have been removed after the last run: then runs are only compared with one another."""
    there = [name for name in names if (folder / name / DESCRIPTION).exists()]
    return {name: dataset_sha256(folder / name) for name in there}
