"""The answer of a study of an own training: the screen of the main study, with the setting to copy and the whole cost of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.schema import Row
from ckptbench.decide.model import LEAST_USEFUL
from ckptbench.decide.units import SECONDS_PER_MINUTE
from ckptbench.report.answer.labels import counted, describe, listed
from ckptbench.report.answer.quantities import SECONDS, Known, Unit, amount, duration, percent
from ckptbench.report.answer.screen import UNTOLD, text
from ckptbench.report.answer.study import screen, shown

Tables = Mapping[str, pd.DataFrame]
MILLISECONDS = Unit("ms", 1000.0)
LONGEST_S = 1.0
"""What a checkpoint costs is said in milliseconds, if it is finished sooner."""
MOST_SETTINGS = 4
"""So many have room on the screen."""
NOTHING = "Nothing to decide from: no run has a timed checkpoint."
FOLDER = "results/own/tables"


def own_text(tables: Tables, folder: str = FOLDER) -> str:
    """At most 30 lines. `folder` is the place of the tables, as a reader would type it."""
    known = screen(tables, folder)
    remarks = known.remarks if known.lines else (NOTHING, *known.remarks[1:])
    return text(
        replace(
            known,
            verdict=(*_verdict(tables), *known.verdict),
            remarks=(
                *_settings(tables, folder),
                *_on_storage(tables["own_saves"]),
                *remarks,
                *_without_first(tables["overhead"]),
            ),
            ending=(f"Your case: ckptbench decide --study {folder} --gpus 256 --mtbf 14h",)
            if known.lines
            else (),
        )
    )


def _verdict(tables: Tables) -> Iterator[str]:
    """What to know of the runs before any number is quoted."""
    runs = tables["own_runs"]
    untimed = runs[~runs["timed"]]
    if len(untimed):
        first = untimed.iloc[0]
        yield f"{len(untimed)} of {counted(len(runs), 'run')} count for nothing, as {first['run']}: {first['untimed']} (table own_runs)."
    silent = runs[runs["timed"] & ~runs["is_baseline"] & (runs["checkpoints"] == 0)]
    if len(silent):
        which = listed(list(dict.fromkeys(map(_values, silent["values"]))))
        yield f"Never saved: {which}. Nothing is known of what that costs."
    failed = int(runs["failed"].sum())
    if failed:
        yield f"{counted(failed, 'save')} ended in an error and {'counts' if failed == 1 else 'count'} for nothing."
    saving = runs[runs["is_baseline"] & (runs["checkpoints"] > 0)]
    if len(saving):
        yield f"Baselines saved too, up to {saving['checkpoints'].max()} times: the overhead against them lacks what that cost."


def _values(content: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in json.loads(content).items())


def _settings(tables: Tables, folder: str) -> Iterator[str]:
    """Of the best strategies, with the most GPUs that were asked for: what to set, what the measured intervals lose, and what a checkpoint costs."""
    rows = shown(tables)
    best = rows[rows["gpus"] == rows["gpus"].max()] if len(rows) else rows
    for row in records(best[:MOST_SETTINGS]):
        yield f"{row['strategy']}: {_setting(row)}. Measured: {_measured(row, tables['advice'])}. {_cost(row, tables['strategies'])}."
    if (more := len(best) - MOST_SETTINGS) > 0:
        yield f"Of {more} more: {folder}/advice.csv and strategies.csv."


def _setting(row: Row) -> str:
    if row["goodput"] < LEAST_USEFUL:
        return "no interval helps"
    if not Known.of(row, "best_minutes").tells:
        lo, hi = (f"{row[f'best_steps_{end}']:,.0f}" for end in ("lo", "hi"))
        return f"how often to save cannot be told, as it is anywhere from {lo} to {hi} steps"
    steps = round(row["best_steps"])
    every = duration(SECONDS_PER_MINUTE * row["best_minutes"])
    return f"save every {counted(steps, 'step')} ({every}): save_steps={steps}, which loses {_lost(row, 'goodput')}"


def _lost(row: Row, column: str) -> str:
    """The part of the time that is not useful, where its interval tells it."""
    told = Known.of(row, column).rest.tells
    return percent(1 - row[column]) if told else UNTOLD


def _measured(row: Row, advice: pd.DataFrame) -> str:
    """What each interval that was measured loses, by its own costs."""
    own = advice[
        (advice["strategy"] == row["strategy"])
        & (advice["rate"] == row["rate"])
        & (advice["gpus"] == row["gpus"])
    ].sort_values("in_use_steps")
    return listed(
        [
            f"{describe('interval', each['interval'])} loses {_lost(each, 'goodput_in_use')}"
            for each in records(own)
        ]
    )


def _cost(row: Row, strategies: pd.DataFrame) -> str:
    names = [name for name in SETUP if name in row]
    (own,) = records(strategies[(strategies[names] == pd.Series(row)[names]).all(axis=1)])
    parts = {"stalls": "stall", "hides": "slowdown", "is finished after": "durable"}
    unit = SECONDS if own["durable_s"] > LONGEST_S else MILLISECONDS
    told = [
        f"{verb} {amount(own[f'{name}_s'], unit, own[f'{name}_s_lo'], own[f'{name}_s_hi'])}"
        for verb, name in parts.items()
        if pd.notna(own[f"{name}_s"])
    ]
    unknown = "; what it hides is not known, as no step followed" * pd.isna(own["slowdown_s"])
    return f"A checkpoint {listed(told)}{unknown}"


def _without_first(overhead: pd.DataFrame) -> Iterator[str]:
    """Where first checkpoints are shown to cost more: why the measured overhead is more than what the same interval is said to lose."""
    if (overhead["in_run_steady_hi"] < overhead["in_run_lo"]).any():
        known = overhead["in_run_steady"].dropna()
        ends = dict.fromkeys(map(percent, (known.min(), known.max())))
        yield f"First checkpoints are in the measured overhead: without them {' to '.join(ends)}."


def _on_storage(saves: pd.DataFrame) -> Iterator[str]:
    """How far it was seen that files were on storage. Finished is the engine's word."""
    counts = saves["on_storage"].value_counts()
    if saves.empty:
        return
    seen = saves["written_back_s"].notna()
    if seen.any():
        most = duration(saves.loc[seen, "written_back_s"].max())
        yield f"Hidden: steps beside a save take longer, beyond the stall. Files of {seen.sum()} of {counted(len(saves), 'checkpoint')} were seen written back, at most {most} after the start."
    else:
        yield f"Hidden: steps beside a save take longer, beyond the stall. No checkpoint was seen written back: {counts.index[0]}."
