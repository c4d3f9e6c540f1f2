"""Run folders to the raw tables."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.collect_proof import collect_proof
from ckptbench.analysis.raw import CHECKPOINTS, EPOCHS, EVALUATIONS, PHASES, RUNS, STEPS
from ckptbench.analysis.run_folder import RankRun, Run
from ckptbench.analysis.schema import Table
from ckptbench.analysis.trace import Event, Floats
from ckptbench.errors import RunFolderError

RANK_FILES = "rank-"
"""What the names of the files begin with that hold one rank's own state."""

Row = dict[str, Any]
PARTS = ("write_s", "sync_s", "checksum_s", "commit_s", "durable_s", "retention_s")
WEIGHTS = ("bytes", "files", "main_bytes", "rank_bytes")
UNKNOWN: Row = {**dict.fromkeys(PARTS, np.nan), **dict.fromkeys(WEIGHTS)}


def collect(folders: Iterable[Path]) -> dict[str, pd.DataFrame]:
    """The raw tables by name. Raises RunFolderError at the first folder that is not a result."""
    runs = sorted((Run.read(folder) for folder in folders), key=lambda run: run.cell.id)
    for one, other in itertools.pairwise(runs):
        if one.cell == other.cell:
            raise RunFolderError(f"{one.folder} and {other.folder} hold the same cell: give one")
    parts = [(run, rank, part) for run in runs for rank, part in enumerate(run.ranks)]

    def events(table: Table, rows: Callable[[Run, RankRun], Iterator[Row]]) -> pd.DataFrame:
        return table.rows(
            {"run": run.cell.id, "rank": rank, **row}
            for run, rank, part in parts
            for row in rows(run, part)
        )

    return {
        "runs": RUNS.rows(_run(run) for run in runs),
        "steps": _steps(parts),
        "epochs": events(EPOCHS, _epochs),
        "checkpoints": events(CHECKPOINTS, _checkpoints),
        "evaluations": events(EVALUATIONS, _evaluations),
        "phases": events(PHASES, _phases),
        **collect_proof(runs),
    }


def _run(run: Run) -> Row:
    manifest, host = run.manifest, run.manifest["host"]
    return {
        "run": run.cell.id,
        **run.cell.to_json(),
        "reference": run.cell.reference.id,
        **{
            name: manifest[name]
            for name in ("seed", "measured_on", "attempts", "requeues", "device")
        },
        "timing_valid": not run.resumed,
        "started": pd.Timestamp(manifest["started"]),
        "ended": pd.Timestamp(manifest["ended"]),
        "duration_s": manifest["duration_s"],
        "steps": run.steps,
        "steps_per_epoch": run.steps_per_epoch,
        "warmup_steps": run.warmup_steps,
        **{f"state_{name}_bytes": size for name, size in manifest["state_bytes"].items()},
        **{name: value for name, value in host.items() if name != "gpus"},
        "gpus": ", ".join(host["gpus"]),
        "nodes": len(set(manifest["hosts"])),
        "lock_sha256": manifest["lock_sha256"],
        **manifest["source"],
        "versions": json.dumps(manifest["versions"], sort_keys=True),
    }


def _steps(parts: list[tuple[Run, int, RankRun]]) -> pd.DataFrame:
    """Built from arrays, in the order of the table: a study has millions of steps."""
    if not parts:
        return STEPS.rows([])
    lengths = [len(part.steps.index) for _, _, part in parts]

    def each(values: list[Any], dtype: type) -> NDArray[Any]:
        return np.repeat(np.array(values, dtype), lengths)

    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part.steps, name) for _, _, part in parts])

    return STEPS.sorted_frame(
        {
            "run": each([run.cell.id for run, _, _ in parts], object),
            "rank": each([rank for _, rank, _ in parts], int),
            "epoch": join("epoch"),
            "step": join("index"),
            "start_ns": join("start_ns"),
            "duration_s": (join("end_ns") - join("start_ns")) / 1e9,
            "wait_s": np.concatenate([_wait_s(run, part) for run, _, part in parts]),
            "loss": join("loss"),
            "warmup": join("index") < each([run.warmup_steps for run, _, _ in parts], int),
        }
    )


def _wait_s(run: Run, part: RankRun) -> Floats:
    """From the last thing that ended (or epoch that began) before each step to its start."""
    steps, trace = part.steps, part.trace
    if run.resumed:
        return np.full(len(steps.index), np.nan)
    before = np.sort(
        np.concatenate(
            [
                steps.end_ns,
                np.array([event["end_ns"] for event in trace.checkpoints.values()], np.int64),
                np.array([event["start_ns"] for event in trace.epochs.values()], np.int64),
            ]
        )
    )
    last = np.searchsorted(before, steps.start_ns, side="right") - 1
    wait_s: Floats = (steps.start_ns - before[last]) / 1e9
    return wait_s


def _epochs(run: Run, part: RankRun) -> Iterator[Row]:
    steps = part.steps
    warmup_end_ns = steps.end_ns[: run.warmup_steps]
    for epoch, event in part.trace.epochs.items():
        own = warmup_end_ns[steps.epoch[: run.warmup_steps] == epoch]
        yield {
            **event,
            "duration_s": _duration_s(event),
            "warmup_s": (int(own[-1]) - event["start_ns"]) / 1e9 if own.size else 0.0,
        }


def _checkpoints(run: Run, part: RankRun) -> Iterator[Row]:
    for event in part.trace.checkpoints.values():
        written = _written(event) if "durable_ns" in event else UNKNOWN
        yield {
            "step": event["step"],
            "epoch": event["epoch"],
            "start_ns": event["start_ns"],
            "stall_s": _duration_s(event),
            "writes": written is not UNKNOWN,
            **written,
        }


def _written(event: Event) -> Row:
    """What a rank that writes knows of one checkpoint."""
    started, written, synced, checked, durable, retained = (
        event[f"{name}_ns"]
        for name in ("start", "written", "synced", "checked", "durable", "retained")
    )
    sizes: dict[str, int] = event["files"]
    rank_bytes = sum(size for name, size in sizes.items() if name.startswith(RANK_FILES))
    return {
        "write_s": (written - started) / 1e9,
        "sync_s": (synced - written) / 1e9,
        "checksum_s": (checked - synced) / 1e9,
        "commit_s": (durable - checked) / 1e9,
        "durable_s": (durable - started) / 1e9,
        "retention_s": (retained - durable) / 1e9,
        "bytes": sum(sizes.values()),
        "files": len(sizes),
        "main_bytes": sum(sizes.values()) - rank_bytes,
        "rank_bytes": rank_bytes,
    }


def _evaluations(run: Run, part: RankRun) -> Iterator[Row]:
    for event in part.trace.evaluations.values():
        yield {**event, "duration_s": _duration_s(event)}


def _phases(run: Run, part: RankRun) -> Iterator[Row]:
    for event in part.trace.phases:
        read = {name: event.get(name) for name in ("read_bytes", "bytes")}
        named = {"node": part.node, "phase": event["name"]}
        yield {**event, **read, **named, "duration_s": _duration_s(event)}


def _duration_s(event: Event) -> float:
    return float(event["end_ns"] - event["start_ns"]) / 1e9
