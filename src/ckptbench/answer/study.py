"""The screen at the end of a study: how often to checkpoint, with what that loses, for each number of GPUs and setup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.answer import remarks
from ckptbench.answer.labels import describe
from ckptbench.answer.screen import Line, Screen, text
from ckptbench.answer.setups import SYSTEM as KINDS
from ckptbench.answer.setups import constants, in_words, separating, varying, with_hardware
from ckptbench.answer.words import Unit, amount, plain
from ckptbench.decide.inputs import GIVEN
from ckptbench.matrix.catalogue import RESTART

Tables = Mapping[str, pd.DataFrame]
Row = Mapping[str, Any]

TITLE = "How often to checkpoint"
NOTHING = "Nothing to decide from: no setup has both timed checkpoints at the level shared and a recovery whose cost is known."
FOLDER = "results/tables"
HOURS_PER_DAY = 24
TELLS = 10.0
"""An interval that spans more than this factor does not tell its number."""
CANNOT = "cannot be told"
UNTOLD = "?"
LIKELY = 0.95
"""A setup is called the best where it is better than all others in at least this part of the draws."""
LEGEND = "In brackets: the 95 % interval. Fine: loses at most a fifth more than the best interval."
LOST = 0.01
"""Where even the best interval has less goodput than this, no interval is recommended."""
PROJECTED = "*"
"""Behind a number of GPUs beyond those that were measured."""
KEY = (*SYSTEM, "strategy", "format", "interval", "recovery")


def study_text(tables: Tables, folder: str = FOLDER) -> str:
    """The screen as text, from the tables that `DECISION` names, and where a study was made from `STUDY_TABLES` too.

    `folder` is the place of the tables, as a reader would type it.
    """
    return text(screen(tables, folder))


def screen(tables: Tables, folder: str = FOLDER) -> Screen:
    """The same before it is laid out."""
    rows = shown(tables)
    if rows.empty:
        return Screen(
            title=TITLE, verdict=remarks.verdict(tables), remarks=(NOTHING, *remarks.of_measurement(tables))
        )  # fmt: skip
    return Screen(
        title=f"{TITLE}: {', '.join(_common(rows)) or 'all setups'}",
        verdict=remarks.verdict(tables),
        heads=_heads(rows),
        lines=tuple(_lines(rows)),
        rest=f"{folder}/advice.csv",
        remarks=(LEGEND, *remarks.of_decision(rows, tables), *remarks.of_measurement(tables)),
        ending=(_own_case(rows, folder),),
    )


def shown(tables: Tables) -> pd.DataFrame:
    """The rows of the screen in its order, each of the tables `advice` and `decision_costs` together, with `name`.

    Of the failure rate that was chosen, and of each strategy at the interval that counts: more GPUs first, and of these the best one.
    """
    advice, costs = tables["advice"], tables["decision_costs"]
    chosen = advice["rate"].isin(tables["scale"]["rate"].unique())
    own = advice[chosen & advice["chance"].notna()]
    known = with_hardware(
        own.merge(costs[[*KEY, *costs.columns.difference(own.columns)]], on=list(KEY))
    )
    if known.empty:
        return known
    by_goodput = known.sort_values(["gpus", "goodput"], ascending=[True, False], kind="stable")
    return by_goodput.assign(name=_names(by_goodput)).reset_index(drop=True)


def _names(rows: pd.DataFrame) -> pd.Series:
    """What a row is beside its number of GPUs: `PyTorch, async`."""
    several = bool((rows.groupby(["framework", "strategy"])["format"].nunique() > 1).any())
    columns = (
        "framework",
        *separating(rows, KINDS),
        "strategy",
        *(["format"] if several else []),
        "recovery",
    )
    named = varying(rows, columns) or ["framework", "strategy"]
    return in_words(rows, named, ", ")


def _common(rows: pd.DataFrame) -> list[str]:
    """In words, what all rows share. Of costs that a user gave: the title of their file."""
    if (rows["framework"] == GIVEN).all():
        return list(dict.fromkeys(rows["model"]))
    names = constants(rows, ("framework", *KINDS, "strategy", "recovery"))
    return [name for name in names if name != describe("recovery", RESTART.name)]


def _heads(rows: pd.DataFrame) -> tuple[str, ...]:
    unit = "rank" if _is_on_ranks(rows) else "GPU"
    in_use = {_interval(row) for row in records(rows)}
    (loses,) = in_use if len(in_use) == 1 else ("in use",)
    lose = "lose" if loses.endswith("s") else "loses"
    return (
        f"{unit}s", "setup", "checkpoint\nevery, min", "\nloses", "fine,\nmin", f"{loses}\n{lose}",
        f"{unit}-hours\nsaved/day", "a save\nstops for",
    )  # fmt: skip


def _is_on_ranks(rows: pd.DataFrame) -> bool:
    """Whether no row is of GPUs: processes on CPU are ranks."""
    return bool((rows["measured_on"].eq("cpu") & ~rows["projected"]).all())


def _lines(rows: pd.DataFrame) -> Iterator[Line]:
    several = rows["interval"].nunique() > 1
    compared = rows.groupby([*SYSTEM, "gpus"], dropna=False)["name"].transform("size") > 1
    place = rows.groupby("gpus").cumcount()
    for row, is_one_of_several, nth in zip(records(rows), compared, place, strict=True):
        mark = PROJECTED if row["projected"] else ""
        is_best = is_one_of_several and row["wins"] and row["alone"] >= LIKELY
        yield Line(
            (
                f"{row['gpus']:,}{mark}",
                f"{row['name']}{' (best)' if is_best else ''}",
                *_cells(row, several),
            ),
            (float(nth), -float(row["gpus"])),
        )


def _cells(row: Row, several: bool) -> tuple[str, ...]:
    lost = {end: _lost(row, "goodput", end) for end in ("", "_lo", "_hi")}
    in_use = {end: _lost(row, "goodput_in_use", end) for end in ("", "_lo", "_hi")}
    used = f"{_interval(row)}: " if several else ""
    saved = HOURS_PER_DAY * row["gpus"] * (in_use[""] - lost[""])
    stall = _amount(
        {"n": row["stall_s"], "n_lo": row["stall_s_lo"], "n_hi": row["stall_s_hi"]}, "s"
    )
    loses = (_percent(lost), f"{used}{_percent(in_use)}", plain(max(0.0, saved)), stall)
    if row["goodput"] < LOST:
        return ("none helps", loses[0], UNTOLD, *loses[1:])
    every = {end: row[f"best_minutes{end}"] for end in ("", "_lo", "_hi")}
    if not tells(every):
        return (CANNOT, loses[0], UNTOLD, loses[1], UNTOLD, stall)
    fine = f"{plain(row['flat_from_minutes'])} - {plain(row['flat_to_minutes'])}"
    return (
        amount({f"n{end}": own for end, own in every.items()}, "n", Unit("")),
        loses[0],
        fine,
        *loses[1:],
    )


def _interval(row: Row) -> str:
    """That of the setup: `4 steps`, `epoch`."""
    return describe("interval", row["interval"]).removeprefix("every ")


def _lost(row: Row, column: str, end: str) -> float:
    """The part of the time that is not useful. The ends of its interval are those of the goodput, the other way round."""
    other = {"": "", "_lo": "_hi", "_hi": "_lo"}[end]
    return 1.0 - float(row[f"{column}{other}"])


def tells(known: Mapping[str, float]) -> bool:
    """Whether an interval, by the ends of its names, spans no more than tenfold. One that is unknown tells nothing of that."""
    return not known["_hi"] > TELLS * known["_lo"]


def _percent(part: Mapping[str, float]) -> str:
    return f"{plain(100 * part[''])} %" if tells(part) else UNTOLD


def _amount(row: Row, unit: str) -> str:
    ends = {end: row[f"n{end}"] for end in ("", "_lo", "_hi")}
    return f"{plain(ends[''])} {unit}" if tells(ends) else UNTOLD


def _own_case(rows: pd.DataFrame, folder: str) -> str:
    return f"Your own case: ckptbench decide --study {folder} --gpus 256 --mtbf 14h, or open results/decision.html."
