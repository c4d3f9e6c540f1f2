"""The table `checkpoints`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ckptbench.analysis.collect.rank_events import duration_s, rank_rows
from ckptbench.analysis.collect.run_folder import RankRun, Run
from ckptbench.analysis.tables.columns import (
    EPOCH,
    HOLD_COLUMNS,
    LEVELS_REACHED,
    PLACE,
    RANK,
    RUN,
    SAVED_STEP,
    START_NS,
    STEADY,
    WRITING_COLUMNS,
)
from ckptbench.analysis.tables.schema import Column, Row, Table
from ckptbench.matrix.levels import LEVELS
from ckptbench.matrix.registry import STRATEGIES
from ckptbench.run.events import Save
from ckptbench.run.trace import Checkpoint

CHECKPOINTS = Table(
    "checkpoints",
    "One row per run, rank and checkpoint. The parts are missing on ranks that write nothing.",
    ("run", "rank", "step"),
    (
        RUN,
        RANK,
        EPOCH,
        SAVED_STEP,
        PLACE,
        STEADY,
        LEVELS_REACHED,
        START_NS,
        Column("stall_s", "number", "s", "training was blocked by the save and by later waits for it, without waits of the next save"),
        Column("save_s", "number", "s", "part of the stall: the save call"),
        *HOLD_COLUMNS,
        Column("to_host_bytes_per_s", "number", "bytes/s", "bytes that the rank wrote / time from the start of the save until its state was copied from the GPU; missing on a CPU and for blocking saves"),
        Column("writes", "flag", "", "whether the rank committed the version, at its farthest level"),
        *WRITING_COLUMNS,
        Column("durable_s", "number", "s", "from the start until everything was on stable storage"),
        Column("ended_s", "number", "s", "from the start until the save and the removal of old versions had ended"),
        Column("bytes", "count", "bytes", "of all files of that commit"),
        Column("files", "count", "1", "number of these files"),
        Column("main_bytes", "count", "bytes", "of the files in the framework's format"),
        Column("rank_bytes", "count", "bytes", "of the files with each rank's local state"),
        Column("parts", "text", "", "JSON list: kind, why, level, start and end of each part, as in `timeline`, but in ns since `start_ns`; they may overlap"),
    ),
)  # fmt: skip

PARTS = ("write_s", "sync_s", "checksum_s", "commit_s", "durable_s", "ended_s")
WEIGHTS = ("bytes", "files", "main_bytes", "rank_bytes")
UNKNOWN: Row = {**dict.fromkeys(PARTS, np.nan), **dict.fromkeys(WEIGHTS)}


def checkpoints(runs: Sequence[Run]) -> pd.DataFrame:
    return CHECKPOINTS.rows(rank_rows(runs, _checkpoints))


def _checkpoints(run: Run, part: RankRun) -> Iterator[Row]:
    # Without those of an attempt that was killed in them.
    saved = [each for each in part.trace.checkpoints.values() if each.save is not None]
    for place, checkpoint in enumerate(sorted(saved, key=_step), start=1):
        save = checkpoint.save
        assert save is not None
        held_s = {"update": 0.0, "save": 0.0, "removal": 0.0, "end": 0.0}
        for hold in checkpoint.holds:
            held_s[hold.why] += duration_s(hold)
        written = _written(save, checkpoint, _farthest(run, save.step))
        yield {
            "step": save.step,
            "place": place,
            "steady": place > run.first_checkpoints,
            "epoch": save.epoch,
            "levels": "+".join(checkpoint.written),
            "start_ns": save.start_ns,
            "stall_s": duration_s(save) + held_s["update"] + held_s["removal"],
            "save_s": duration_s(save),
            **{f"{why}_hold_s": held_s[why] for why in ("update", "save", "removal")},
            "to_host_bytes_per_s": _to_host(run, save, checkpoint),
            "writes": written is not UNKNOWN,
            **written,
            "parts": json.dumps(
                [
                    (*names, start_ns - save.start_ns, end_ns - save.start_ns)
                    for *names, start_ns, end_ns in _parts(checkpoint, save)
                ],
                separators=(",", ":"),
            ),
        }


def _to_host(run: Run, save: Save, checkpoint: Checkpoint) -> float:
    """Bytes per second of the copy from the GPU. A blocking save writes while it copies."""
    is_copy = not STRATEGIES[run.cell.strategy.name].blocking
    if run.manifest["measured_on"] != "gpu" or not is_copy or checkpoint.captured is None:
        return math.nan
    files = next((each.files for each in checkpoint.written.values()), [])
    return sum(each.bytes for each in files) * 1e9 / (checkpoint.captured.at_ns - save.start_ns)


def _parts(checkpoint: Checkpoint, save: Save) -> Iterator[tuple[str, str, str, int, int]]:
    """Kind, why, level, start and end of each."""
    yield "save", "", "", save.start_ns, save.end_ns
    for hold in checkpoint.holds:
        yield "hold", hold.why, "", hold.start_ns, hold.end_ns
    if checkpoint.captured is not None:
        yield "capture", "", "", save.start_ns, checkpoint.captured.at_ns
    # One level is written, and committed, after the other.
    begun_ns, free_ns = save.start_ns, save.start_ns
    for level in sorted(checkpoint.written, key=LEVELS.index):
        written_ns, durable = checkpoint.written[level].at_ns, checkpoint.durable.get(level)
        yield "write", "", level, begun_ns, written_ns
        if durable is not None:
            yield "sync", "", level, max(written_ns, free_ns), durable.synced_ns
            yield "checksum", "", level, durable.synced_ns, durable.checked_ns
            yield "commit", "", level, durable.checked_ns, durable.committed_ns
            free_ns = durable.committed_ns
        begun_ns = written_ns
    if checkpoint.retained is not None:
        yield "removal", "", "", checkpoint.retained.start_ns, checkpoint.retained.end_ns


def _step(checkpoint: Checkpoint) -> int:
    return checkpoint.save.step if checkpoint.save is not None else 0


def _farthest(run: Run, step: int) -> str | None:
    """The farthest level at which any rank has committed a part of the checkpoint.

    At a level that belongs to a node, of ranks on several nodes, one rank of each commits the node's part.
    """
    of_ranks = (part.trace.checkpoints.get(step) for part in run.ranks)
    committed = {level for each in of_ranks if each is not None for level in each.durable}
    return max(committed, key=LEVELS.index, default=None)


def _written(save: Save, checkpoint: Checkpoint, farthest: str | None) -> Row:
    """What a rank that commits knows of one checkpoint."""
    if farthest not in checkpoint.durable:
        return UNKNOWN
    durable, written = checkpoint.durable[farthest], checkpoint.written[farthest]
    ended_ns = checkpoint.retained.end_ns if checkpoint.retained else durable.committed_ns
    size = sum(file.bytes for file in durable.files)
    rank_bytes = sum(file.bytes for file in durable.files if file.kind == "own")
    return {
        "write_s": (written.at_ns - save.start_ns) / 1e9,
        "sync_s": (durable.synced_ns - written.at_ns) / 1e9,
        "checksum_s": (durable.checked_ns - durable.synced_ns) / 1e9,
        "commit_s": (durable.committed_ns - durable.checked_ns) / 1e9,
        "durable_s": (durable.committed_ns - save.start_ns) / 1e9,
        "ended_s": (ended_ns - save.start_ns) / 1e9,
        "bytes": size,
        "files": len(durable.files),
        "main_bytes": size - rank_bytes,
        "rank_bytes": rank_bytes,
    }
