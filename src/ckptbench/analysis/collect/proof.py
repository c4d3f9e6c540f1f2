"""The tables `digests` and `values`: what runs recorded for the resume proof."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.collect.values import Comparison, compare
from ckptbench.analysis.tables.columns import ATTEMPT, EPOCH, GROUP, RANK, RUN, TENSOR
from ckptbench.analysis.tables.schema import Column, Row, Table
from ckptbench.matrix.networks.tensor_groups import group_of
from ckptbench.run.events import Digest
from ckptbench.run.seal import refused

DIGESTS = Table(
    "digests",
    "One row per digest, in runs with `training.proof`.",
    ("run", "rank", "attempt", "step", "when", "level", "tensor"),
    (
        RUN,
        RANK,
        ATTEMPT,
        Column("when", "text", "", "as in docs/run-folder.md"),
        Column("level", "text", "", "of a version"),
        EPOCH,
        Column("step", "integer", "1", "completed steps of the whole run"),
        TENSOR,
        GROUP,
        Column("digest", "text", "", "of dtype, shape and bytes"),
    ),
)  # fmt: skip

VALUES = Table(
    "values",
    "One row per run, rank and tensor: the tensor at the end of the run, compared with that of its reference.",
    ("run", "rank", "tensor"),
    (
        RUN,
        Column("reference", "text", "", "id of the uninterrupted run"),
        RANK,
        TENSOR,
        GROUP,
        Column("elements", "integer", "1", "of the tensor; of the larger one if shapes differ"),
        Column("different", "integer", "1", "elements with other bits; all of them if type or shape differ"),
        Column("max_ulp", "count", "1", "largest distance in units in the last place; missing if a NaN is compared with a number, or shapes differ"),
        Column("relative_l2", "number", "1", "||run - reference||2 / ||reference||2; infinite where that is undefined"),
    ),
)  # fmt: skip


def digests(runs: Sequence[Run]) -> pd.DataFrame:
    """Built from columns, in the order of the table: a proof has millions of digests."""
    columns: dict[str, list[Any]] = {name: [] for name in DIGESTS.names}
    for run in runs:
        for rank, part in enumerate(run.ranks if run.proof else ()):
            for attempt, event in sorted(part.trace.digests, key=_moment):
                _add(columns, event, {"run": run.cell.id, "rank": rank, "attempt": attempt})
    return DIGESTS.sorted_frame(pd.DataFrame(columns))


def _moment(digest: tuple[int, Digest]) -> tuple[int, int, str, str]:
    attempt, event = digest
    return attempt, event.step, event.when, event.level or ""


def _add(columns: dict[str, list[Any]], event: Digest, place: Mapping[str, Any]) -> None:
    found = {**event.tensors, **event.rank_state}
    tensors = sorted(found)
    moment = {
        "when": event.when,
        "epoch": event.epoch,
        "step": event.step,
        "level": event.level or "",
    }
    for name, value in {**place, **moment}.items():
        columns[name] += [value] * len(tensors)
    columns["tensor"] += tensors
    columns["group"] += map(group_of, tensors)
    columns["digest"] += [found[tensor] for tensor in tensors]


def values(runs: Sequence[Run]) -> pd.DataFrame:
    """Of the runs whose reference is among `runs`."""
    by_id = {run.cell.id: run for run in runs}
    return VALUES.rows(row for run in runs for row in _values(run, by_id))


def _values(run: Run, by_id: Mapping[str, Run]) -> Iterator[Row]:
    reference = by_id.get(run.cell.reference.id)
    if run.cell.is_undisturbed or reference is None or not (run.proof and reference.proof):
        return
    for rank, own in run.final_arrays.items():
        other = reference.final_arrays[rank]
        for tensor, comparison in compare_files(own, other):
            yield {
                "run": run.cell.id,
                "reference": reference.cell.id,
                "rank": rank,
                "tensor": tensor,
                "group": group_of(tensor),
                **dataclasses.asdict(comparison),
            }


def compare_files(path: Path, reference: Path) -> Iterator[tuple[str, Comparison]]:
    """Every tensor of either file, one in memory at a time; what one file lacks differs in every element.

    Raises RunFolderError with the file that does not hold arrays of numbers.
    """
    with _opened(path) as own, _opened(reference) as other:
        for name in sorted({*own.files, *other.files}):
            yield name, compare(_array(path, own, name), _array(reference, other, name))


@contextmanager
def _opened(path: Path) -> Iterator[NpzFile]:
    with _named(path):
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, NpzFile):
            raise ValueError("it is no archive of arrays")
    with file:
        yield file


def _array(path: Path, file: NpzFile, name: str) -> NDArray[Any]:
    with _named(path):
        array: NDArray[Any] = file[name] if name in file.files else np.zeros(0)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name} holds {array.dtype}, and no numbers")
        return array


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise refused(path, f"its arrays cannot be read: {error}") from error
