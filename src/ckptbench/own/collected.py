"""The tables that the main study collects, of an own training: the same columns, filled with what the probe saw.

What nobody knows of an own training stays empty or 0: its dataset, its batches, its epochs, its seed and its source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import pandas as pd

from ckptbench.analysis.collect.machine import LIMITS, MACHINE, disturbance
from ckptbench.analysis.collect.rank_events import EVALUATIONS
from ckptbench.analysis.collect.runs import RUNS
from ckptbench.analysis.collect.spans import SPANS
from ckptbench.analysis.collect.steps import STEPS
from ckptbench.analysis.cost.stall import HOLDS, STALL
from ckptbench.analysis.tables.schema import Row
from ckptbench.matrix.levels import SHARED
from ckptbench.own.naming import Named
from ckptbench.own.seen import WARMUP_STEPS, SeenRun
from ckptbench.own.times import is_first, is_warmup
from ckptbench_probe.reading import ProcessSeen, SaveSeen

NS = 1e9
UNKNOWN_STRATEGY = {"blocking": False, "shared_every": 1}
"""What is taken of a strategy that the user's training brings."""
BYTES = (
    "state_model_bytes", "state_optimizer_bytes", "state_second_moments_bytes", "state_rest_bytes",
)  # fmt: skip


def runs(seen: Sequence[SeenRun], named: Named) -> pd.DataFrame:
    return RUNS.rows(_run(run, named) for run in seen)


def _run(run: SeenRun, named: Named) -> Row:
    content, host = run.done.content, run.done.content["host"]
    setup = named.setup(run)
    known = next((one.file_system for one in run.checkpoints if one.file_system), None)
    state = {name: sum(sizes.values()) for name, sizes in run.measures.state.items()}
    return {
        "run": run.cell.id,
        **setup,
        "repeat": run.cell.repeat,
        "reference": run.cell.id,
        "baseline": run.cell.baseline,
        **UNKNOWN_STRATEGY,
        "seed": 0,
        "attempts": run.measures.attempts,
        "requeues": 0,
        "timing_valid": not run.untimed,
        "started": pd.Timestamp(content["started_unix_s"], unit="s", tz="UTC"),
        "ended": pd.Timestamp(content["ended_unix_s"], unit="s", tz="UTC"),
        "duration_s": content["wall_s"],
        "wall_s": run.measures.run_s,
        "steps": run.measures.updates,
        "steps_per_epoch": 0,
        "warmup_steps": WARMUP_STEPS,
        **dict.fromkeys(BYTES, 0),
        "state_model_bytes": state.pop("weights", 0),
        "state_optimizer_bytes": sum(state.values()),
        "device": ", ".join(dict.fromkeys(host["gpus"]))
        if setup["measured_on"] == "gpu"
        else "cpu",
        **{name: host[name] for name in ("host", "cpu", "memory_bytes", "kernel")},
        "nodes": len({one.host for one in run.ranks}) or 1,
        "cores": host["cores"],
        "gpus": ", ".join(host["gpus"]),
        "checkpoint_file_system": known or host["checkpoint_file_system"],
        "scheduler_job": host["scheduler_job"],
        "lock_sha256": "",
        "revision": None,
        "dirty": None,
        "versions": "{}",
    }


def machine(seen: Sequence[SeenRun]) -> pd.DataFrame:
    return MACHINE.rows(map(_machine, seen))


def _machine(run: SeenRun) -> Row:
    content = run.done.content
    shares = {name: math.nan if content[name] is None else content[name] for name in LIMITS}
    return {
        "run": run.cell.id,
        "host": content["host"]["host"],
        "seconds": content["wall_s"],
        "cores": content["host"]["cores"],
        **shares,
        **disturbance(shares),
    }


def stall(seen: Sequence[SeenRun], named: Named) -> pd.DataFrame:
    """Of runs that are timed. A save in the foreground is all write; of one in the background the stall is the capture.

    `durable_s` is when the engine said that it had finished.
    """
    return STALL.rows(row for run in seen for row in _stalls(run, named.setup(run)))


def _stalls(run: SeenRun, setup: Row) -> Iterator[Row]:
    if run.cell.is_baseline:
        return
    for place, one in enumerate(run.checkpoints, start=1):
        yield {
            "run": run.cell.id,
            **setup,
            "repeat": run.cell.repeat,
            "epoch": 0,
            "step": one.updates,
            "place": place,
            "steady": not is_first(place),
            "levels": SHARED,
            "warmup": is_warmup(one),
            "blocking": not one.background,
            "stall_s": one.stall_s,
            "capture_s": one.stall_s if one.background else 0.0,
            "write_s": one.finished_s if one.background else one.stall_s,
            **dict.fromkeys(
                ("sync_s", "checksum_s", "commit_s", "wait_s", "save_hold_s", *HOLDS), 0.0
            ),
            "durable_s": one.finished_s,
            "bytes": one.size,
        }


def progress(seen: Sequence[SeenRun]) -> dict[str, pd.DataFrame]:
    """The tables `steps`, `spans` and `evaluations`, from which the timeline is made. A step lasts from the update before it, or from the end of
    the save between the two, to its own."""
    own = [run for run in seen if not run.cell.is_baseline]
    return {
        "steps": STEPS.rows(row for run in own for row in _steps(run)),
        "spans": SPANS.rows(row for run in own for row in _spans(run)),
        "evaluations": EVALUATIONS.rows([]),
    }


def _steps(run: SeenRun) -> Iterator[Row]:
    for rank, process in enumerate(run.ranks):
        blocked = _by_updates(process, stepping=True)
        moments = process.updates_ns
        for done, (before, after) in enumerate(itertools.pairwise(moments), start=1):
            ends = [save.end_ns for save in blocked.get(done, []) if save.end_ns is not None]
            start_ns = min(max([before, *ends]), after)
            yield {
                "run": run.cell.id,
                "rank": rank,
                "epoch": 0,
                "step": done,
                "start_ns": start_ns,
                "duration_s": (after - start_ns) / NS,
                "wait_s": math.nan,
                "loss": math.nan,
                "warmup": done < WARMUP_STEPS,
            }


def _spans(run: SeenRun) -> Iterator[Row]:
    """A rank that did not save, or not on the thread that steps, has a save of no length, where the checkpoint began."""
    for rank, process in enumerate(run.ranks):
        own = _by_updates(process)
        for one in run.checkpoints:
            saves = own.get(one.updates, [])
            same = {"run": run.cell.id, "rank": rank, "step": one.updates, "why": "", "level": ""}
            for kind, start_ns, end_ns in _parts(saves, one.start_ns):
                level = SHARED if kind in ("write", "commit") else ""
                yield {**same, "kind": kind, "level": level, "start_ns": start_ns, "end_ns": end_ns}


def _parts(saves: Sequence[SaveSeen], begun_ns: int) -> Iterator[tuple[str, int, int]]:
    """Of one rank. What ends is the last of its saves."""
    blocking = [(one.start_ns, one.end_ns) for one in saves if one.stepping and one.end_ns]
    if blocking:
        yield "save", min(start for start, _ in blocking), max(end for _, end in blocking)
    else:
        yield "save", begun_ns, begun_ns
    finished = [one.finished_ns for one in saves if one.finished_ns is not None]
    if saves and len(finished) == len(saves):
        start_ns = min(one.start_ns for one in saves)
        captured = [one.captured_ns for one in saves if one.captured_ns is not None]
        if captured:
            yield "capture", start_ns, max(captured)
        yield "write", start_ns, max(finished)
        yield "commit", max(finished), max(finished)


def _by_updates(process: ProcessSeen, *, stepping: bool = False) -> dict[int, list[SaveSeen]]:
    found: dict[int, list[SaveSeen]] = {}
    for save in process.saves:
        if not save.failed and (save.stepping or not stepping):
            found.setdefault(save.updates, []).append(save)
    return found
