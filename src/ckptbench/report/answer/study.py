"""The screen at the end of a study: how often to checkpoint, with what that loses, for each number of GPUs and setup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.schema import Row
from ckptbench.decide.inputs import GIVEN, UNFINISHED
from ckptbench.decide.model import LEAST_USEFUL
from ckptbench.decide.projection import projected
from ckptbench.decide.units import HOURS_PER_DAY
from ckptbench.matrix.registry import RESTART
from ckptbench.report.answer import remarks, sizes
from ckptbench.report.answer.labels import describe
from ckptbench.report.answer.quantities import (
    PERCENT,
    PLAIN,
    SECONDS,
    Quantity,
    Unit,
    amount,
    plain,
    saved,
    span,
)
from ckptbench.report.answer.screen import (
    AT_LEAST,
    AT_MOST,
    BOUND,
    NAME,
    NO_RANGE,
    NONE_HELPS,
    Line,
    Screen,
    saves_at,
    text,
)
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    constants,
    in_words,
    of_most_ranks,
    separating,
    varying,
    with_hardware,
)

Tables = Mapping[str, pd.DataFrame]

TITLE = "How often to checkpoint"
NOTHING = "Nothing to decide from: no setup has timed checkpoints (at the level shared) and a timed recovery."
FOLDER = "results/tables"
LIKELY = 0.95
"""It is shown to be where it is better than all others in at least this part of the draws."""
LEGEND = "Brackets: 95 % interval. Fine: at most a fifth more lost, restarts aside, and at most one point."
WIDE = "Where an interval spans more than ten-fold, more measurements or failures of your own narrow it."
BEST_LEGEND = " +: shown to lose the least."
"""Where a row has the mark."""
BEST = " +"
"""Behind a setup that is shown to be better than all others of its system."""
NONE_FINE = "none"
"""Where even the best interval loses more than half."""
IN_USE = 5
"""The column of what the interval in use loses; the next one is saved against it."""
PROJECTED = "*"
"""Behind a number of GPUs beyond those that were measured."""
KEY = (*SYSTEM, "strategy", "format", "interval", "recovery")


def study_text(tables: Tables, folder: str = FOLDER, config: str = "") -> str:
    """The screen as text, from the tables that `DECISION` names, and where a study was made from `STUDY_TABLES` too.

    `folder` is the place of the tables, as a reader would type it; `config` says of which config they are.
    """
    return text(answer(tables, folder, config))


def answer(tables: Tables, folder: str = FOLDER, config: str = "") -> Screen:
    """The same before it is laid out. What a study does not ask, its answer leaves out."""
    return (sizes.screen if sizes.is_asked(tables) else screen)(tables, folder, config)


def screen(tables: Tables, folder: str = FOLDER, config: str = "") -> Screen:
    """How often to checkpoint."""
    rows, said = shown(tables), (config,) if config else ()
    if rows.empty:
        return Screen(
            title=TITLE, verdict=remarks.verdict(tables), remarks=(NOTHING, *remarks.of_measurement(tables)), ending=said
        )  # fmt: skip
    lines, heads = tuple(_lines(rows)), _heads(rows)
    untold = any("\n[" in cell for line in lines for cell in line.cells) or not all(
        Quantity.of(row, "best_minutes").is_conclusive for row in records(rows)
    )
    is_used = rows["in_use_steps"].notna().any()
    if not is_used:
        lines = tuple(replace(line, cells=_without_use(line.cells)) for line in lines)
        heads = _without_use(heads)
    has_best = any(line.cells[NAME].endswith(BEST) for line in lines)
    return Screen(
        title=f"{TITLE}: {', '.join(_common(rows)) or 'all setups'}",
        verdict=remarks.verdict(tables),
        heads=heads,
        lines=lines,
        rest=f"{folder}/advice.csv",
        remarks=(
            LEGEND + (BEST_LEGEND if has_best else ""),
            *([_saved_against(rows)] if is_used else []),
            *([WIDE] if untold else []),
            *([BOUND] if rows["is_bound"].any() else []),
            *remarks.of_decision(rows, tables),
            *remarks.of_measurement(tables),
        ),
        ending=(*said, _own_case(rows, folder)),
    )


def shown(tables: Tables) -> pd.DataFrame:
    """The rows of the screen in its order, each of the tables `advice` and `decision_costs` together, with costs as projected and `name`.

    Of the failure rate that was chosen, of each strategy at the interval that counts, and projected from the most ranks alone: fewer GPUs first, and of these the best
    one.
    """
    advice, costs = tables["advice"], tables["decision_costs"]
    chosen = advice["rate"].isin(tables["scale"]["rate"].unique())
    own = advice[chosen & advice["p_best"].notna()]
    known = with_hardware(
        own.merge(costs[[*KEY, *costs.columns.difference(own.columns)]], on=list(KEY))
    )
    if known.empty:
        return known
    rows = records(of_most_ranks(known))
    known = pd.DataFrame([projected(row, row["gpus"]) for row in rows])
    rates = tables["failure_rates"].set_index("rate")["failures"]
    known = known.assign(is_bound=known["rate"].map(rates).eq(0).fillna(False))
    by_goodput = known.sort_values(["gpus", "goodput"], ascending=[True, False], kind="stable")
    named = by_goodput.assign(name=_names(by_goodput), now_name=lambda own: own["name"])
    return (_against_today(named) if _is_given(named) else named).reset_index(drop=True)


def _against_today(rows: pd.DataFrame) -> pd.DataFrame:
    """All beside the setup in use at its interval. Of a study, each setup is compared with itself."""
    today = rows[rows["today"]].set_index("gpus")
    columns = {"goodput_in_use": "goodput_in_use", "goodput_in_use_lo": "goodput_in_use_lo", "goodput_in_use_hi": "goodput_in_use_hi", "now_name": "name", "now_note": "note"}  # fmt: skip
    beside = rows.assign(
        **{name: rows["gpus"].map(today[column]) for name, column in columns.items()}
    )
    saved_hours = HOURS_PER_DAY * rows["gpus"] * (rows["goodput"] - beside["goodput_in_use"])
    return beside.assign(saved_gpu_hours=saved_hours)


def _names(rows: pd.DataFrame) -> pd.Series:
    """What a row is beside its number of GPUs: `PyTorch, async`."""
    several = bool((rows.groupby(["framework", "strategy"])["format"].nunique() > 1).any())
    columns = (
        "framework",
        *separating(rows, PANEL_COLUMNS),
        "strategy",
        *(["format"] if several else []),
        "recovery",
    )
    named = varying(rows, columns) or ["framework", "strategy"]
    return in_words(rows, named, ", ")


def _common(rows: pd.DataFrame) -> list[str]:
    """In words, what all rows share. Of costs that a user gave: the title of their file."""
    if _is_given(rows):
        return list(dict.fromkeys(rows["model"]))
    names = constants(rows, ("framework", *PANEL_COLUMNS, "strategy", "recovery"))
    return [name for name in names if name != describe("recovery", RESTART.name)]


def _is_given(rows: pd.DataFrame) -> bool:
    """Whether the costs are those of a user's file."""
    return bool((rows["framework"] == GIVEN).all())


def _heads(rows: pd.DataFrame) -> tuple[str, ...]:
    unit = remarks.unit_of(rows)
    in_use = {_interval(row) for row in records(rows)}
    (loses,) = in_use if len(in_use) == 1 else ("in use",)
    lose = "lose" if loses.endswith("s") else "loses"
    if _is_given(rows):
        loses, lose = "today", "loses"
    is_bound = rows["is_bound"].all()
    every, least, now = (f"every\n{AT_LEAST}", f"loses\n{AT_MOST}", f"{loses} {lose}\n{AT_MOST}") if is_bound else ("checkpoint\nevery", "\nloses", f"{loses}\n{lose}")  # fmt: skip
    return (
        f"{unit}s", "setup", f"{every.rstrip()}, min", least.rstrip(), "fine,\nmin", now.rstrip(),
        f"{unit}-h/day\nsaved", "a save\nstops for",
    )  # fmt: skip


def _saved_against(rows: pd.DataFrame) -> str:
    if not _is_given(rows):
        return "Saved: against the same setup at the interval in use."
    (interval,) = {_interval(row) for row in records(rows)}
    return f"Today, and what is saved against it: every {interval} with {rows['now_name'].iloc[0]}."


def _without_use(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Without what needs an interval in use: what that loses, and what is saved against it."""
    return (*cells[:IN_USE], *cells[IN_USE + 2 :])


def _lines(rows: pd.DataFrame) -> Iterator[Line]:
    several = rows["interval"].nunique() > 1
    compared = rows.groupby([*SYSTEM, "gpus"], dropna=False)["name"].transform("size") > 1
    trainings = separating(rows, PANEL_COLUMNS)
    place = rows.groupby(["gpus", *trainings]).cumcount()
    for row, is_one_of_several, nth in zip(records(rows), compared, place, strict=True):
        mark = PROJECTED if row["projected"] else ""
        is_shown = row["p_strictly_best"] >= LIKELY and not row["is_bound"]
        is_best = is_one_of_several and row["is_best"] and is_shown
        yield Line(
            (
                f"{row['gpus']:,}{mark}",
                f"{row['name']}{BEST if is_best else ''}",
                *_cells(row, several),
            ),
            (float(nth), -float(row["gpus"])),
        )


def _cells(row: Row, several: bool) -> tuple[str, ...]:
    loses, loses_now = (
        _told(Quantity.of(row, name).rest, PERCENT) for name in ("goodput", "goodput_in_use")
    )
    loses, loses_now = (
        _at_least(text, UNFINISHED in row.get(note, ""))
        for text, note in ((loses, "note"), (loses_now, "now_note"))
    )
    now = f"{_interval(row)}: {loses_now}" if several else loses_now
    stops = _told(Quantity.of(row, "stall_s"), SECONDS)
    every = Quantity.of(row, "best_minutes")
    saves = saved(row["saved_gpu_hours"])
    if row["is_bound"]:
        before = saves_at(row["in_use_steps"], row["best_steps"])
        return (every.shown(PLAIN), loses, NO_RANGE, now, before + saves, stops)
    if row["goodput"] < LEAST_USEFUL:
        return (NONE_HELPS, loses, NO_RANGE, now, plain(0.0), stops)
    from_minutes, to_minutes = row["fine_from_minutes"], row["fine_to_minutes"]
    fine = NONE_FINE if math.isnan(from_minutes) else span(from_minutes, to_minutes, PLAIN)
    return (every.shown(PLAIN), loses, fine, now, saves, stops)


def _at_least(loses: str, is_least: bool) -> str:
    return f"at least {loses}" if is_least else loses


def _interval(row: Row) -> str:
    """That of the setup: `4 steps`, `epoch`."""
    return describe("interval", row["interval"]).removeprefix("every ")


def _told(known: Quantity, unit: Unit) -> str:
    """The number, and below it its interval where that spans more than ten-fold."""
    return amount(known.value, unit) if known.is_conclusive else known.shown(unit).replace(" [", "\n[")  # fmt: skip


def _own_case(rows: pd.DataFrame, folder: str) -> str:
    if _is_given(rows):
        return "Other numbers: ckptbench decide, or docs/calculator.html"
    return f"Your case: ckptbench decide --study {folder} --gpus 256 --mtbf 14h; --html FILE writes a page"
