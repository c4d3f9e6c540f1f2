"""The table `timeline`: a typical checkpoint of every setup, as spans on one time axis."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ckptbench.analysis.cost.stall import blocked_s, steady_or_all
from ckptbench.analysis.tables.columns import (
    RANK,
    REPEAT,
    RUN,
    SETUP,
    SETUP_COLUMNS,
)
from ckptbench.analysis.tables.grouping import by_run, groups
from ckptbench.analysis.tables.schema import Column, Table

STEPS_AFTER = 2
"""How many steps after the commit the window shows."""

TIMELINE = Table(
    "timeline",
    "One row per span of time of a typical checkpoint of each setup with valid timing, on each rank. The window goes from the start of the step before"
    f" the save to the end of the {STEPS_AFTER} steps of the same epoch that follow the commit. It includes parts of other checkpoints.",
    (*SETUP, "rank", "start_s", "end_s", "kind", "of_step"),
    (
        RUN,
        *SETUP_COLUMNS,
        REPEAT,
        Column("step", "integer", "1", "completed steps that the checkpoint contains"),
        RANK,
        Column(
            "kind", "text", "",
            "`save`; `hold`: training waited later; `capture`; `write`, level by level; `sync`, `checksum` and `commit`, on the rank that commits; `removal` of old versions; `step`; `evaluation`",
        ),
        Column("why", "text", "", "of a `hold`: `update`, `save`, `removal` or `end`, as in docs/run-folder.md"),
        Column("level", "text", "", "of the version, for `write`, `sync`, `checksum` and `commit`"),
        Column("of_step", "integer", "1", "completed steps of its own checkpoint, or at its end"),
        Column("start_s", "number", "s", "since the start of the shown save on this rank"),
        Column("end_s", "number", "s", "likewise"),
    ),
)  # fmt: skip

PART = ["run", "rank", "step", "start_ns", "end_ns", "kind", "why", "level"]
SHOWN = ["kind", "why", "level", "of_step", "start_ns", "end_ns"]


def timeline(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """From the tables `steps`, `checkpoints`, `evaluations` and `stall`.

    The typical checkpoint is the one whose place in the order of the stalls is nearest to the median, of an even number the
    lower of both medians, among those whose window has the most steps after the commit. Near the end of an epoch, where
    evaluation follows, it has fewer. Checkpoints are those of the steady state, or all after
    the warm-up where a run has no steady ones; of several levels those that went to the most.
    """
    timed = tables["stall"][~tables["stall"]["warmup"]]
    if timed.empty:
        return TIMELINE.rows([])
    runs = set(timed["run"])
    steps, checkpoints, evaluations = (
        tables[name][tables[name]["run"].isin(runs)]
        for name in ("steps", "checkpoints", "evaluations")
    )
    spans = parts_of(checkpoints)
    chosen = {"steps": by_run(steps), "spans": by_run(spans), "evaluations": by_run(evaluations)}
    commits = spans[spans["kind"] == "commit"]
    timed = timed.join(
        commits.groupby(["run", "step"])["level"].nunique().rename("reached"), on=["run", "step"]
    )
    rows = [
        part
        for setup, group in groups(timed, SETUP)
        for part in _typical(setup, steady_or_all(group), chosen)
    ]
    return TIMELINE.frame(pd.concat(rows, ignore_index=True))


def parts_of(checkpoints: pd.DataFrame) -> pd.DataFrame:
    """A row for each part of these checkpoints, from the column `parts`; times by the clock of the rank's host."""
    rows = [
        (run, rank, step, start_ns + begin_ns, start_ns + end_ns, *names)
        for run, rank, step, start_ns, parts in checkpoints[
            ["run", "rank", "step", "start_ns", "parts"]
        ].itertuples(index=False)
        for *names, begin_ns, end_ns in json.loads(parts)
    ]
    found = pd.DataFrame(rows, columns=PART)
    return found.sort_values([*PART[:6], "level"], ignore_index=True)


@dataclass(frozen=True, slots=True)
class _Window:
    """What is shown of a checkpoint, in seconds from the start of the save on the rank that commits last."""

    start_s: float
    end_s: float
    steps_after: int
    """How many steps after the commit are in it: STEPS_AFTER, or fewer where the epoch ended before."""


def _typical(
    setup: dict[str, Any], stalls: pd.DataFrame, tables: Mapping[str, dict[str, pd.DataFrame]]
) -> Iterator[pd.DataFrame]:
    """The rows of each rank."""
    farthest = stalls[stalls["reached"] == stalls["reached"].max()]
    by_length = farthest.assign(blocked_s=blocked_s(farthest)).sort_values(
        ["blocked_s", "run", "step"], ignore_index=True
    )
    places = sorted(by_length.index, key=lambda place: abs(place - (len(by_length) - 1) // 2))
    ends = {run: _ends_of_epochs(tables["steps"][run]) for run in by_length["run"].unique()}
    shown: tuple[pd.Series[Any], _Window] | None = None
    for place in places:
        checkpoint = by_length.loc[place]
        run, step = checkpoint["run"], checkpoint["step"]
        most = min(_next(ends[run], step) - step, STEPS_AFTER)
        if shown is not None and most <= shown[1].steps_after:
            continue
        window = _window(tables, run, step)
        if shown is None or window.steps_after > shown[1].steps_after:
            shown = checkpoint, window
    assert shown is not None
    checkpoint, window = shown
    run, step = checkpoint["run"], checkpoint["step"]
    same = {**setup, "run": run, "repeat": checkpoint["repeat"], "step": step}
    spans, steps = tables["spans"][run], tables["steps"][run]
    evaluations = _of_evaluations(tables["evaluations"].get(run), steps)
    for rank in sorted(spans["rank"].unique()):
        of_rank = spans[spans["rank"] == rank].rename(columns={"step": "of_step"})
        training = pd.concat([_of_steps(steps), evaluations])
        every = pd.concat([of_rank[SHOWN], training[training["rank"] == rank][SHOWN]])
        is_shown = (of_rank["of_step"] == step) & (of_rank["kind"] == "save")
        yield _cut(every, of_rank["start_ns"][is_shown].iloc[0], window).assign(rank=rank, **same)


def _ends_of_epochs(steps: pd.DataFrame) -> list[int]:
    """Completed steps of the run at the end of each epoch, rising."""
    return sorted(steps.groupby("epoch")["step"].max() + 1)


def _next(rising: list[int], least: int) -> int:
    return rising[bisect.bisect_left(rising, least)]


def _of_steps(steps: pd.DataFrame) -> pd.DataFrame:
    return steps.assign(
        kind="step", why="", level="", of_step=steps["step"] + 1, end_ns=_end_ns(steps)
    )


def _of_evaluations(evaluations: pd.DataFrame | None, steps: pd.DataFrame) -> pd.DataFrame:
    """None: the run did not evaluate."""
    if evaluations is None:
        return _of_steps(steps[:0])
    done = (steps.groupby("epoch")["step"].max() + 1).rename("of_step")
    known = evaluations.join(done, on="epoch", how="inner")
    return known.assign(kind="evaluation", why="", level="", end_ns=_end_ns(known))


def _end_ns(rows: pd.DataFrame) -> pd.Series[Any]:
    ends: pd.Series[Any] = rows["start_ns"] + np.rint(rows["duration_s"] * 1e9).astype(np.int64)
    return ends


def _window(tables: Mapping[str, dict[str, pd.DataFrame]], run: str, step: int) -> _Window:
    steps, spans = tables["steps"][run], tables["spans"][run]
    own = spans[spans["step"] == step]
    # Clocks of different ranks may be those of different hosts.
    begun_ns = own[own["kind"] == "save"].set_index("rank")["start_ns"]
    commits = own[own["kind"] == "commit"]
    taken_ns = commits["end_ns"] - commits["rank"].map(begun_ns)
    last = commits.loc[taken_ns.sort_values(kind="stable").index[-1]]
    on_rank = own["rank"] == last["rank"]
    zero_ns = own[on_rank & (own["kind"] == "save")]["start_ns"].iloc[0]
    of_rank = _of_steps(steps[steps["rank"] == last["rank"]])
    before = of_rank[of_rank["of_step"] == step]
    epoch = before["epoch"].iloc[0]
    later = of_rank[(of_rank["epoch"] == epoch) & (of_rank["start_ns"] >= last["end_ns"])]
    after = later.sort_values("start_ns").iloc[:STEPS_AFTER]
    end_ns = max([last["end_ns"], *after["end_ns"]])
    start_s, end_s = ((at_ns - zero_ns) / 1e9 for at_ns in (before["start_ns"].iloc[0], end_ns))
    return _Window(start_s, end_s, len(after))


def _cut(spans: pd.DataFrame, zero_ns: int, window: _Window) -> pd.DataFrame:
    """The spans that reach into the window, in seconds since `zero_ns`."""
    start_s, end_s = ((spans[name] - zero_ns) / 1e9 for name in ("start_ns", "end_ns"))
    inside = (end_s > window.start_s) & (start_s < window.end_s)
    return spans.assign(
        start_s=start_s.clip(lower=window.start_s), end_s=end_s.clip(upper=window.end_s)
    )[inside]
