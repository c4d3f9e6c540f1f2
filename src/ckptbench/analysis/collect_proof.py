"""What runs recorded for the resume proof, to the raw tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.raw_proof import DIGESTS, KILLS, VALUES
from ckptbench.analysis.run_folder import Run
from ckptbench.analysis.tensor_groups import group_of
from ckptbench.analysis.trace import Event
from ckptbench.analysis.values import Comparison, compare
from ckptbench.cells import WHOLE

Row = dict[str, Any]


def collect_proof(runs: Iterable[Run]) -> dict[str, pd.DataFrame]:
    """The tables `digests`, `kills` and `values`, from runs sorted by the id of their cell."""
    by_id = {run.cell.id: run for run in runs}
    return {
        "digests": _digests(by_id.values()),
        "kills": KILLS.rows(
            {"run": run.cell.id, **kill, "inside": kill["inside"] or ""}
            for run in by_id.values()
            for kill in run.manifest["kills"]
        ),
        "values": VALUES.rows(row for run in by_id.values() for row in _values(run, by_id)),
    }


def _digests(runs: Iterable[Run]) -> pd.DataFrame:
    """Built from columns, in the order of the table: a proof has millions of digests."""
    columns: dict[str, list[Any]] = {name: [] for name in DIGESTS.names}
    for run in runs:
        for rank, part in enumerate(run.ranks if run.proof else ()):
            for event in sorted(part.trace.digests, key=_moment):
                _add(columns, event, run.cell.id, rank)
    return DIGESTS.sorted_frame(pd.DataFrame(columns))


def _moment(event: Event) -> tuple[int, int, str]:
    return event["attempt"], event["step"], event["when"]


def _add(columns: dict[str, list[Any]], event: Event, run: str, rank: int) -> None:
    digests = {**event["tensors"], **event["rank_state"]}
    tensors = sorted(digests)
    place = {name: event[name] for name in ("attempt", "when", "epoch", "step")}
    same = {"run": run, "rank": rank, **place}
    for name, value in same.items():
        columns[name] += [value] * len(tensors)
    columns["tensor"] += tensors
    columns["group"] += map(group_of, tensors)
    columns["digest"] += [digests[tensor] for tensor in tensors]


def _values(run: Run, by_id: Mapping[str, Run]) -> Iterator[Row]:
    reference = by_id.get(run.cell.reference.id)
    if run.cell.history == WHOLE or reference is None or not (run.proof and reference.proof):
        return
    both = zip(run.final_arrays, reference.final_arrays, strict=True)
    for rank, (own, other) in enumerate(both):
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
    """Every tensor of either file, one in memory at a time; what one file lacks differs in every element."""
    nothing = np.zeros(0)
    with (
        np.load(path, allow_pickle=False) as own,
        np.load(reference, allow_pickle=False) as other,
    ):
        for name in sorted({*own.files, *other.files}):
            one, another = (file[name] if name in file.files else nothing for file in (own, other))
            yield name, compare(one, another)
