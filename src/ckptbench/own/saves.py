"""The tables `own_runs` and `own_saves`: every run of an own training, and every checkpoint as the probe measured it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ckptbench.analysis.tables.columns import PLACE, REPEAT, RUN
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.own.naming import Named
from ckptbench.own.seen import SeenRun
from ckptbench.own.times import is_first, is_warmup

OWN_RUNS = Table(
    "own_runs",
    "One row a run of an own training.",
    ("run",),
    (
        RUN,
        Column("values", "text", "", "JSON object: the label of each placeholder's value; of a baseline those alone that it does not replace"),
        Column("strategy", "text", "", "what the run is called in other tables: its values without the interval"),
        REPEAT,
        Column("is_baseline", "flag", "", "whether it was to save nothing"),
        Column("baseline", "text", "", "the run that it is compared with; its own of a baseline"),
        Column("ranks", "integer", "1", "processes that trained"),
        Column("steps", "integer", "1", "updates of the first rank"),
        Column("checkpoints", "integer", "1", "that were saved; all saves between two steps are one"),
        Column("failed", "integer", "1", "more, whose save ended in an error: they count for nothing"),
        Column("interval_steps", "number", "steps", "between two of them, median; missing where nothing was saved"),
        Column("step_s", "number", "s", "a step that no save touches, mean; missing where there is none"),
        Column("start_s", "number", "s", "from the start of a process to its first step, on the slowest rank"),
        Column("wall_s", "number", "s", "of the whole command"),
        Column("share", "number", "1", "the part of the time from the first step to the last event that stalls and hidden slowdown took"),
        Column("timed", "flag", "", "whether its times count"),
        Column("untimed", "text", "", "why not; empty where they do"),
    ),
)  # fmt: skip
OWN_SAVES = Table(
    "own_saves",
    "One row a checkpoint of an own training, as ckptbench-probe measured it: all saves of all ranks between the same two steps.",
    ("run", "step"),
    (
        RUN,
        Column("step", "integer", "1", "completed steps before it"),
        PLACE,
        Column("warmup", "flag", "", "whether it came in the first steps, which no time is taken from"),
        Column("first", "flag", "", "whether it is the first of its run: it counts only where a run has no other"),
        Column("engines", "text", "", "the calls that saved, joined by ` and `"),
        Column("background", "flag", "", "whether a save went on after its call had returned, or on another thread than that of the steps"),
        Column("stall_s", "number", "s", "the thread that steps was blocked, slowest rank"),
        Column("hidden_s", "number", "s", "hidden slowdown: the gaps between updates from its start until it was finished, longer than quiet ones, less the stall; missing where no step followed"),
        Column("finished_s", "number", "s", "from the start until the engine said that it was finished; missing where it did not"),
        Column("written_back_s", "number", "s", "from the start until the kernel had written all files; missing where that was not seen"),
        Column("on_storage", "text", "", "`written back`, `left this node`, or why that was not seen"),
        Column("file_system", "text", "", "that took the files; empty where not known"),
        Column("bytes", "integer", "bytes", "of all files"),
        Column("files", "integer", "1", "number of these files"),
        Column("memory_bytes", "integer", "bytes", "peak of memory above that at the start of the save, on the rank where that is the most"),
    ),
)  # fmt: skip


def own_runs(runs: Sequence[SeenRun], named: Named) -> pd.DataFrame:
    return OWN_RUNS.rows(_of_run(run, named) for run in runs)


def _of_run(run: SeenRun, named: Named) -> dict[str, Any]:
    measures = run.measures
    return {
        "run": run.cell.id,
        "values": json.dumps(dict(run.cell.values)),
        "strategy": named.strategies[run.cell.setup],
        "repeat": run.cell.repeat,
        "is_baseline": run.cell.is_baseline,
        "baseline": run.cell.baseline,
        "ranks": measures.ranks,
        "steps": measures.updates,
        "checkpoints": len(run.checkpoints),
        "failed": len(measures.checkpoints) - len(run.checkpoints),
        "interval_steps": measures.interval_steps,
        "step_s": measures.step_s.mean if measures.step_s else None,
        "start_s": measures.start_s,
        "wall_s": run.done.content["wall_s"],
        "share": measures.share,
        "timed": not run.untimed,
        "untimed": run.untimed,
    }


def own_saves(runs: Sequence[SeenRun]) -> pd.DataFrame:
    """Of runs that are timed."""
    return OWN_SAVES.rows(row for run in runs for row in _saves(run))


def _saves(run: SeenRun) -> Iterator[dict[str, Any]]:
    for place, one in enumerate(run.checkpoints, start=1):
        yield {
            "run": run.cell.id,
            "step": one.updates,
            "place": place,
            "warmup": is_warmup(one),
            "first": is_first(place),
            "engines": " and ".join(one.kinds),
            "background": one.background,
            "stall_s": one.stall_s,
            "hidden_s": one.hidden_s,
            "finished_s": one.finished_s,
            "written_back_s": one.clean_s,
            "on_storage": one.clean,
            "file_system": one.file_system,
            "bytes": one.size,
            "files": one.files,
            "memory_bytes": one.memory_bytes,
        }
