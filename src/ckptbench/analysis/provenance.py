"""The table `provenance`, and the words in which a caption says where its figure was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from ckptbench.analysis.tables.columns import MACHINE_COLUMNS, MEASURED_ON, SETUP
from ckptbench.analysis.tables.grouping import continued, groups, records
from ckptbench.analysis.tables.schema import Column, Table

PROVENANCE = Table(
    "provenance",
    "One row per machine, device, file system and source revision.",
    ("measured_on", "host", "device", "first_date", "revision", "checkpoint_file_system", "cpu", "cores"),
    (
        MEASURED_ON,
        *MACHINE_COLUMNS,
        Column("dirty", "flag", "", "whether any run had uncommitted changes"),
        Column("first_date", "text", "", "UTC day on which the first run began"),
        Column("last_date", "text", "", "UTC day on which the last run ended"),
        Column("runs", "integer", "1", ""),
        Column("continued", "integer", "1", "of these runs, those that were continued"),
        Column("nodes_max", "integer", "1", "most machines of one run"),
        Column("repeats_min", "integer", "1", "fewest repeats of a setup"),
        Column("repeats_max", "integer", "1", "most repeats of a setup"),
        Column("versions", "text", "", "JSON object: versions by package, if runs differ"),
    ),
)  # fmt: skip


MACHINE_KEY = (MEASURED_ON.name, *(column.name for column in MACHINE_COLUMNS))


def provenance(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the table `runs`. Of some rows of it, the provenance of these."""
    runs = tables["runs"]
    repeats = runs.groupby(list(SETUP))["repeat"].transform("nunique")
    known = runs.assign(repeats=repeats)
    return PROVENANCE.rows(
        _row(machine, runs_there) for machine, runs_there in groups(known, MACHINE_KEY)
    )


def _row(machine: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    return {
        **{name: None if pd.isna(value) else value for name, value in machine.items()},
        "dirty": bool(runs["dirty"].fillna(False).any()),
        "first_date": f"{runs['started'].min():%Y-%m-%d}",
        "last_date": f"{runs['ended'].max():%Y-%m-%d}",
        "runs": len(runs),
        "continued": len(continued(runs)),
        "nodes_max": runs["nodes"].max(),
        "repeats_min": runs["repeats"].min(),
        "repeats_max": runs["repeats"].max(),
        "versions": json.dumps(_merged(map(json.loads, runs["versions"].unique()))),
    }


def _merged(versions: Iterable[dict[str, str]]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for packages in versions:
        for package, version in packages.items():
            found.setdefault(package, set()).add(version)
    return {package: ", ".join(sorted(found[package])) for package in sorted(found)}


def caption_facts(provenance: pd.DataFrame) -> str:
    """`Measured on CPU (AMD EPYC, 2 cores, ext4), 2026-01-02, 3 repeats`, for the caption of a figure."""
    if provenance.empty:
        return "Nothing was measured"
    machines = dict.fromkeys(map(machine_in_words, records(provenance)))
    first, last = provenance["first_date"].min(), provenance["last_date"].max()
    fewest, most = provenance["repeats_min"].min(), provenance["repeats_max"].max()
    repeats = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    nodes = provenance["nodes_max"].max()
    facts = [
        f"Measured on {' and '.join(machines)}",
        *([f"on up to {nodes} nodes a run"] if nodes > 1 else []),
        first if first == last else f"{first} to {last}",
        f"{repeats} repeat{'s' if most > 1 else ''}",
    ]
    if provenance["dirty"].any():
        facts.append("source with uncommitted changes")
    return ", ".join(facts)


def machine_in_words(row: Mapping[str, Any]) -> str:
    """`CPU (AMD EPYC, 2 cores, ext4)`, of a row of `provenance`."""
    device = "CPU" if row["measured_on"] == "cpu" else f"GPU {row['device']}"
    cores = f"{row['cores']} core{'s' if row['cores'] > 1 else ''}"
    return f"{device} ({row['cpu']}, {cores}, {row['checkpoint_file_system']})"
