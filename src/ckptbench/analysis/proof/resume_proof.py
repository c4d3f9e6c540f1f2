"""The table `resume_proof`: whether a run has the bits of its reference, and where it parts from it if not."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from ckptbench.analysis.proof.divergence import compared_digests, proven
from ckptbench.analysis.proof.missing import missing_parts
from ckptbench.analysis.tables.columns import REPEAT, RUN, SETUP_COLUMNS
from ckptbench.analysis.tables.curves import curves
from ckptbench.analysis.tables.grouping import by_run, records
from ckptbench.analysis.tables.schema import Column, Row, Table
from ckptbench.matrix.networks.tensor_groups import GROUPS
from ckptbench.matrix.registry import NOTHING

RESUME_PROOF = Table(
    "resume_proof",
    "One row per run with a proof that was killed, or repeated with the same seed, compared with the uninterrupted run of that seed.",
    ("run",),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("reference", "text", "", "id of the uninterrupted run"),
        Column("attempts", "integer", "1", "1: never restarted"),
        Column("digests", "integer", "1", "digests compared: of every tensor and rank, after each epoch and at the end"),
        Column("different_digests", "integer", "1", "of these, those that differ"),
        Column("bit_equal", "flag", "", "whether no digest and, at the end, no element of a tensor differs"),
        Column("first_epoch", "count", "1", "first at whose end a digest differs"),
        Column("first_tensors", "text", "", "up to three tensors that differ there"),
        Column("groups", "text", "", "of tensors that differ at the end"),
        Column("tensors", "integer", "1", "names compared at the end"),
        Column("different_tensors", "integer", "1", "of these, those that differ on any rank"),
        Column("max_ulp", "count", "1", "largest of any weights or momentum tensor at the end"),
        Column("relative_l2", "number", "1", "the same"),
        Column("loss_difference", "number", "1", "of the training loss, over the steps that both recorded; maximum over epochs"),
        Column("accuracy_difference", "number", "1", "of the test accuracy after the last epoch"),
        Column("missing", "text", "", "parts of the state that a restart did not restore"),
        Column("caught", "verdict", "", "of a negative control: whether `missing` names what was left out, and the end differs"),
    ),
)  # fmt: skip


NAMED = 3
"""How many tensors are named of those that part first."""
TRAINED = ("weights", "momentum")
FELT_BY = {"statistics": "statistics"}
"""Which group of tensors an omission must show in at the end, where not in the weights: no training step reads the
statistics of batch norm. The digests of what was left out may differ without any effect on the training."""


def resume_proof(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `runs`, `digests`, `values`, `steps`, `epochs` and `evaluations`."""
    runs = proven(tables)
    names = {*runs["run"], *runs["reference"]}
    compared = by_run(compared_digests(tables))
    digests, values, steps = (
        by_run(tables[table][tables[table]["run"].isin(names)])
        for table in ("digests", "values", "steps")
    )
    accuracy = by_run(curves(tables, names))

    def row(run: Row) -> Row:
        name, reference = run["run"], run["reference"]
        distances = values.get(name, tables["values"].iloc[:0])  # of a large model none are kept
        bits = _bits(compared[name], distances)
        missing = missing_parts(digests[name])
        return {
            **run,
            **bits,
            **_distances(distances),
            "loss_difference": _loss_difference(steps[name], steps[reference]),
            "accuracy_difference": _accuracy_difference(accuracy[name], accuracy[reference]),
            "missing": missing,
            "caught": _caught(run["omit"], missing, bits["groups"].split(", ")),
        }

    return RESUME_PROOF.rows(row(run) for run in records(runs))


def _bits(compared: pd.DataFrame, values: pd.DataFrame) -> Row:
    different = compared[compared["different"]]
    first = different["epoch"].min()
    tensors_there = sorted(different.loc[different["epoch"] == first, "tensor"].unique())
    end = compared[compared["when"] == "end"]
    different_end = end[end["different"]]
    return {
        "digests": len(compared),
        "different_digests": len(different),
        "bit_equal": different.empty and not values["different"].any(),
        "first_epoch": None if different.empty else first,
        "first_tensors": ", ".join(tensors_there[:NAMED]),
        "groups": in_order(different_end["group"]),
        "tensors": end["tensor"].nunique(),
        "different_tensors": different_end["tensor"].nunique(),
    }


def in_order(groups: pd.Series[str]) -> str:
    """The groups of tensors that are among these, in their usual order."""
    found = set(groups)
    return ", ".join(group for group in GROUPS if group in found)


def _distances(values: pd.DataFrame) -> Row:
    trained = values[values["group"].isin(TRAINED)]
    return {
        # One tensor at an unknown distance makes the largest one unknown.
        "max_ulp": trained["max_ulp"].max(skipna=False),
        "relative_l2": trained["relative_l2"].max(),
    }


def _loss_difference(steps: pd.DataFrame, reference: pd.DataFrame) -> float:
    """Over the steps that both recorded: those of an attempt that was killed may be lost."""
    both = steps.merge(reference, on=["rank", "step"], suffixes=("", "_reference"))
    difference = both["loss"] - both["loss_reference"]
    means = [abs(epoch.to_numpy().mean()) for _, epoch in difference.groupby(both["epoch"])]
    return float(np.max(means)) if means else math.nan


def _accuracy_difference(curve: pd.DataFrame, reference: pd.DataFrame) -> float:
    last, expected = (
        frame.sort_values("epoch")["test_accuracy"].iloc[-1] for frame in (curve, reference)
    )
    return float(abs(last - expected))


def _caught(omitted: str, missing: str | None, different_groups: list[str]) -> bool | None:
    if omitted == NOTHING:
        return None
    return missing == omitted and FELT_BY.get(omitted, "weights") in different_groups
