"""The screen at the end of a study: how often to checkpoint, with what that loses, for each number of GPUs and setup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.schema import Row
from ckptbench.decide.inputs import GIVEN
from ckptbench.decide.model import LEAST_USEFUL
from ckptbench.decide.projection import projected
from ckptbench.matrix.registry import RESTART
from ckptbench.report.answer import remarks
from ckptbench.report.answer.labels import describe
from ckptbench.report.answer.quantities import (
    PERCENT,
    PLAIN,
    SECONDS,
    Quantity,
    Unit,
    amount,
    plain,
    span,
)
from ckptbench.report.answer.screen import (
    CANNOT,
    NAME,
    NONE_HELPS,
    UNTOLD,
    WHY_UNTOLD,
    Line,
    Screen,
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
LEGEND = "Brackets: 95 % interval. Fine: at most a fifth more lost than at best."
BEST_LEGEND = " +: shown to lose the least."
"""Where a row has the mark."""
BEST = " +"
"""Behind a setup that is shown to be better than all others of its system."""
IN_USE = 5
"""The column of what the interval in use loses; the next one is saved against it."""
PROJECTED = "*"
"""Behind a number of GPUs beyond those that were measured."""
KEY = (*SYSTEM, "strategy", "format", "interval", "recovery")


def study_text(tables: Tables, folder: str = FOLDER, config: str = "") -> str:
    """The screen as text, from the tables that `DECISION` names, and where a study was made from `STUDY_TABLES` too.

    `folder` is the place of the tables, as a reader would type it; `config` says of which config they are.
    """
    return text(screen(tables, folder, config))


def screen(tables: Tables, folder: str = FOLDER, config: str = "") -> Screen:
    """The same before it is laid out."""
    rows, said = shown(tables), (config,) if config else ()
    if rows.empty:
        return Screen(
            title=TITLE, verdict=remarks.verdict(tables), remarks=(NOTHING, *remarks.of_measurement(tables)), ending=said
        )  # fmt: skip
    lines, heads = tuple(_lines(rows)), _heads(rows)
    if rows["in_use_steps"].isna().all():
        lines = tuple(replace(line, cells=_without_use(line.cells)) for line in lines)
        heads = _without_use(heads)
    untold = any(UNTOLD in line.cells for line in lines)
    has_best = any(line.cells[NAME].endswith(BEST) for line in lines)
    return Screen(
        title=f"{TITLE}: {', '.join(_common(rows)) or 'all setups'}",
        verdict=remarks.verdict(tables),
        heads=heads,
        lines=lines,
        rest=f"{folder}/advice.csv",
        remarks=(
            LEGEND + (BEST_LEGEND if has_best else ""),
            *(
                [f"{WHY_UNTOLD} More measurements or a failure rate of your own can narrow it."]
                if untold
                else []
            ),
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
    by_goodput = known.sort_values(["gpus", "goodput"], ascending=[True, False], kind="stable")
    return by_goodput.assign(name=_names(by_goodput)).reset_index(drop=True)


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
    return (
        f"{unit}s", "setup", "checkpoint\nevery, min", "\nloses", "fine,\nmin", f"{loses}\n{lose}",
        f"{unit}-h/day\nsaved", "a save\nstops for",
    )  # fmt: skip


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
        is_best = is_one_of_several and row["is_best"] and row["p_strictly_best"] >= LIKELY
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
    now = f"{_interval(row)}: {loses_now}" if several else loses_now
    stops = _told(Quantity.of(row, "stall_s"), SECONDS)
    every = Quantity.of(row, "best_minutes")
    if row["goodput"] < LEAST_USEFUL:
        return (NONE_HELPS, loses, UNTOLD, now, plain(0.0), stops)
    if not every.is_conclusive:
        return (CANNOT, loses, UNTOLD, now, UNTOLD, stops)
    fine = span(row["fine_from_minutes"], row["fine_to_minutes"], PLAIN)
    # As much as the losses that it is the difference of.
    saved = UNTOLD if UNTOLD in (loses, loses_now) else plain(max(0.0, row["saved_gpu_hours"]))
    return (every.shown(PLAIN), loses, fine, now, saved, stops)


def _interval(row: Row) -> str:
    """That of the setup: `4 steps`, `epoch`."""
    return describe("interval", row["interval"]).removeprefix("every ")


def _told(known: Quantity, unit: Unit) -> str:
    """The number alone, where its interval tells it."""
    return amount(known.value, unit) if known.is_conclusive else UNTOLD


def _own_case(rows: pd.DataFrame, folder: str) -> str:
    if _is_given(rows):
        return "Other numbers: ckptbench decide, or docs/calculator.html"
    return f"Your case: ckptbench decide --study {folder} --gpus 256 --mtbf 14h; --html FILE writes a page"
