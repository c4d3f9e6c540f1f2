"""The run as a trace that Perfetto and chrome://tracing show: steps, stalls, capture, background, pointers.

The format: "Trace Event Format" of the Chromium project, JSON object form; times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ckptbench_probe.reading import ProbedProcess, ProbedRun, ProbedSave

MOST_RANKS = 16
MOST_STEPS = 100_000
"""Of all ranks together: viewers grow slow beyond."""
STEPS, STALL, BACKGROUND, FILES = 1, 2, 3, 4
TRACKS = {STEPS: "steps", STALL: "stall", BACKGROUND: "background", FILES: "files"}
Record = dict[str, Any]


def write(run: ProbedRun, path: Path) -> None:
    ranks = run.trained[:MOST_RANKS]
    each = MOST_STEPS // max(len(ranks), 1)
    start = min((one.updates_ns[0] for one in ranks), default=0)
    records = [
        record for number, one in enumerate(ranks) for record in _of(one, number, start, each)
    ]
    content = {
        "traceEvents": records,
        "displayTimeUnit": "ms",
        "otherData": {"run": run.name, "ranks": len(run.trained), "ranks shown": len(ranks)},
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def _of(process: ProbedProcess, number: int, start: int, most_steps: int) -> Iterator[Record]:
    rank = number if process.rank is None else process.rank
    yield _name("process_name", number, 0, f"rank {rank} on {process.host}")
    for track, name in TRACKS.items():
        yield _name("thread_name", number, track, name)
    gaps = list(zip(process.updates_ns, process.updates_ns[1:]))[:most_steps]
    for index, (before, after) in enumerate(gaps):
        yield _span(number, STEPS, f"step {index + 1}", before - start, length_ns=after - before)
    for save in process.saves:
        yield from _of_save(save, number, start)
    for event in process.events:
        if event["event"] in ("moved", "linked", "pointer", "removed"):
            yield {
                "ph": "i", "s": "t", "name": f"{event['event']} {Path(event['path']).name}",
                "pid": number, "tid": FILES, "ts": (event["at_ns"] - start) / 1e3, "args": {"path": event["path"]},
            }  # fmt: skip


def _of_save(save: ProbedSave, number: int, start: int) -> Iterator[Record]:
    detail = {"path": save.path, "kind": save.kind}
    if save.end_ns is not None:
        track = STALL if save.stepping else BACKGROUND
        yield _span(
            number,
            track,
            save.kind,
            save.start_ns - start,
            length_ns=save.end_ns - save.start_ns,
            detail=detail,
        )
    for name, at in (
        ("captured", save.captured_ns),
        ("finished", save.finished_ns),
        ("clean", save.clean_ns),
    ):
        begin = save.end_ns if save.stepping and save.end_ns is not None else save.start_ns
        if (
            at is not None
            and at > begin
            and (name != "clean" or save.clean in ("written back", "left this node"))
        ):
            # Spans of the same track may overlap only where one holds the other, and saves may overlap: they are asynchronous ones.
            key = {"cat": "save", "id": f"{save.id}.{name}", "name": f"until {name if name != 'clean' else save.clean}", "pid": number, "tid": BACKGROUND}  # fmt: skip
            yield {**key, "ph": "b", "ts": (begin - start) / 1e3, "args": detail}
            yield {**key, "ph": "e", "ts": (at - start) / 1e3}


def _span(
    process: int, track: int, name: str, at_ns: int, *, length_ns: int, detail: Record | None = None
) -> Record:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": track,
        "ts": at_ns / 1e3,
        "dur": length_ns / 1e3,
        "args": detail or {},
    }


def _name(kind: str, process: int, track: int, name: str) -> Record:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}
