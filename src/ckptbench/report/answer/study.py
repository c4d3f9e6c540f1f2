"""The screen at the end of a study: how often to checkpoint, with what that loses, for each number of GPUs and setup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.schema import Row
from ckptbench.decide.advice import OTHER_RATES
from ckptbench.decide.inputs import GIVEN, UNFINISHED
from ckptbench.decide.projection import projected
from ckptbench.decide.rates import OWN
from ckptbench.decide.units import SECONDS_PER_MINUTE
from ckptbench.matrix.registry import RESTART
from ckptbench.report.answer import notes, remarks, sizes
from ckptbench.report.answer.cells import fine, interval, loss, saving, stalls
from ckptbench.report.answer.choice import Choice, fine_steps
from ckptbench.report.answer.labels import counted, describe, listed
from ckptbench.report.answer.layout import Block, units
from ckptbench.report.answer.quantities import Quantity
from ckptbench.report.answer.screen import Line, Screen, text
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
NOTHING = "No answer on the interval: no setup has timed checkpoints (at the level shared) and a timed recovery."
FOLDER = "results/tables"
SHOWN_BEST = "Shown to be best (95 % confidence)"
LIKELY = 0.95
"""It is shown to be where it is better than all others in at least this part of the draws."""
HEADS = ("", "setup", "save every", "loses", "{unit}-hours a day", "fine")
TODAY = {
    "goodput_in_use": "goodput_in_use",
    "goodput_in_use_lo": "goodput_in_use_lo",
    "goodput_in_use_hi": "goodput_in_use_hi",
    "in_use_steps": "in_use_steps",
    "name": "now_name",
    "label": "now_label",
    "note": "now_note",
    "step_used_s": "now_step_s",
}
"""Columns of the row whose interval is in use, by which names the other rows have them."""
KEY = (*SYSTEM, "strategy", "format", "interval", "recovery")


def study_text(tables: Tables, folder: str = FOLDER, config: str = "") -> str:
    """The screen as text, from the tables that `DECISION` names, and where a study was made from `STUDY_TABLES` too.

    `folder` is the place of the tables, as a reader would type it; `config` says of which config they are.
    """
    page = f"{Path(folder).parent / 'index.html'}"
    return text(replace(answer(tables, folder, config), more=f"in {page}", rest=page))


def answer(tables: Tables, folder: str = FOLDER, config: str = "") -> Screen:
    """The same before it is laid out. What a study does not ask, its answer leaves out."""
    return (sizes.screen if sizes.is_asked(tables) else screen)(tables, folder, config)


def screen(tables: Tables, folder: str = FOLDER, config: str = "") -> Screen:
    """How often to checkpoint."""
    rows, said = shown(tables), tuple(config.splitlines())
    if rows.empty:
        return Screen(
            title=TITLE, verdict=remarks.verdict(tables), remarks=(NOTHING, *remarks.of_measurement(tables)), ending=said
        )  # fmt: skip
    blocks = tuple(blocks_of(rows))
    verdict = remarks.verdict(tables)
    device = () if _is_given(rows) else remarks.of_device(rows)
    return Screen(
        title=f"{TITLE}: {', '.join(_common(rows)) or 'all setups'}",
        verdict=(*verdict[:1], *device, *verdict[1:]),
        heads=tuple(head.format(unit=remarks.unit_of(rows)) for head in HEADS),
        lines=tuple(_lines(blocks)),
        blocks=blocks,
        unit=remarks.unit_of(rows),
        remarks=(
            *remarks.of_rate(rows, tables["failure_rates"]),
            *([notes.BOUND] if rows["is_bound"].any() else []),
            *remarks.of_waiting(rows),
            *notes.on_now(blocks),
            *notes.on_other_rates(blocks[-1]),
            *_winners(rows),
            *remarks.of_decision(rows),
            *remarks.of_measurement(tables),
        ),
        explained=tuple(notes.explained(blocks)),
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
    counts = known["rate"].map(rates)
    step_s = known["best_minutes"] * SECONDS_PER_MINUTE / known["best_steps"]
    known = known.assign(
        is_bound=counts.eq(0).fillna(False),
        is_counted=_is_own_count(known, tables["failure_rates"]),
        step_used_s=step_s,
    )
    by_goodput = known.sort_values(["gpus", "goodput"], ascending=[True, False], kind="stable")
    named = by_goodput.assign(name=_names(by_goodput), label=_labels(by_goodput))
    return _against_today(named).reset_index(drop=True)


def _is_own_count(rows: pd.DataFrame, rates: pd.DataFrame) -> pd.Series:
    """Whether the failures of the reader's own machine were counted."""
    own = rates.set_index("rate")
    return rows["rate"].map(own["source"].eq(OWN) & own["failures"].notna())


def _together(rows: pd.DataFrame) -> list[str]:
    """Columns: rows that are equal in them are compared with one interval in use. Of a study these are the rows that a page shows together."""
    return ["gpus"] if _is_given(rows) else [*SYSTEM, "gpus", "recovery"]


def _against_today(rows: pd.DataFrame) -> pd.DataFrame:
    """All beside the interval in use that they are compared with."""
    by = _together(rows)
    today = rows.loc[rows["today"].astype(bool), [*by, *TODAY]].rename(columns=TODAY)
    return rows.drop(columns=[*TODAY.values()], errors="ignore").merge(today, "left", on=by)


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
    named = varying(rows, columns) or (["strategy"] if _is_given(rows) else ["framework", "strategy"])  # fmt: skip
    return in_words(rows, named, ", ")


def _labels(rows: pd.DataFrame) -> pd.Series:
    """What a row is beside the others of its block."""
    if _is_given(rows):
        return _names(rows)
    return in_words(rows, varying(rows, ("strategy", "format")) or ["strategy"], ", ")


def _common(rows: pd.DataFrame) -> list[str]:
    """In words, what all rows share. Of costs that a user gave: the title of their file."""
    if _is_given(rows):
        return list(dict.fromkeys(rows["model"]))
    names = constants(rows, ("framework", *PANEL_COLUMNS, "strategy", "recovery"))
    return [name for name in names if name != describe("recovery", RESTART.name)]


def _is_given(rows: pd.DataFrame) -> bool:
    """Whether the costs are those of a user's file."""
    return bool((rows["framework"] == GIVEN).all())


def blocks_of(rows: pd.DataFrame) -> Iterator[Block]:
    """The rows of `shown`, those together that are compared with one another."""
    by = _together(rows)
    names = varying(rows, ("framework", *separating(rows, PANEL_COLUMNS), "recovery"))
    numbers = rows["gpus"].nunique()
    titles = in_words(rows, names, ", ") if names else rows["name"].map(lambda _: "")
    blocks: dict[tuple[Any, ...], list[Row]] = {}
    for row in records(rows.assign(title=titles)):
        key = tuple(
            None if pd.isna(row[name]) else row[name] for name in by
        )  # one NaN is not another
        blocks.setdefault(key, []).append(row)
    for of in blocks.values():
        projected = ", projected" if of[0]["projected"] else ""
        where = f"{counted(of[0]['gpus'], remarks.unit_of(rows))}{projected}"
        choices = tuple(choice_of(row) for row in of)
        if _is_given(rows):
            title = where if numbers > 1 else ""
            yield Block(choices=choices, title=title, place=title)
            continue
        stops = stalls([(row["label"], row["stall_s"], row["slowdown_s"]) for row in of])
        place = ", ".join(filter(None, [of[0]["title"], where]))
        yield Block(choices=choices, title=f"{place}: {stops}", place=place)


def choice_of(row: Row) -> Choice:
    """A row of `shown`."""
    is_bound = bool(row["is_bound"])
    is_used = not math.isnan(row["in_use_steps"])
    others = [row[f"best_minutes_{name}"] * SECONDS_PER_MINUTE for name in OTHER_RATES]
    now = Choice(
        name=row["now_name"],
        label=row["now_label"],
        steps=Quantity(row["in_use_steps"]),
        interval_s=Quantity(row["in_use_steps"] * row["now_step_s"]),
        loses=Quantity.of(row, "goodput_in_use").rest,
        is_least=UNFINISHED in row["now_note"],
        is_bound=is_bound,
    )
    return Choice(
        name=row["name"],
        label=row["label"],
        steps=Quantity.of(row, "best_steps"),
        interval_s=Quantity.of(row, "best_minutes", SECONDS_PER_MINUTE),
        loses=Quantity.of(row, "goodput").rest,
        fine_steps=fine_steps(row["fine_from_steps"], row["fine_to_steps"]),
        saves=Quantity.of(row, "saved_gpu_hours") if is_used else None,
        is_least=UNFINISHED in row["note"],
        is_bound=is_bound,
        now=now if is_used else None,
        is_async=bool(row["durable_s"] > max(row["stall_s"], row["stall_s_hi"])),
        other_s=None if row["is_counted"] else (others[0], others[1]),
    )


def _lines(blocks: Sequence[Block]) -> Iterator[Line]:
    """The same rows as cells, for a page."""
    for number, (block, time) in enumerate(zip(blocks, units(blocks), strict=True)):
        for nth, (name, choice) in enumerate(block.rows):
            every = " ".join(filter(None, interval(choice, time, in_use=choice is block.choices[0].now)))  # fmt: skip
            cells = (
                "" if nth else block.title,
                name,
                every,
                loss(choice),
                saving(choice),
                fine(choice, time),
            )
            yield Line(cells, (float(nth), -float(number)))


def _winners(rows: pd.DataFrame) -> Iterator[str]:
    """Setups that are shown to be better than all others of their system."""
    several = rows.groupby([*SYSTEM, "gpus"], dropna=False)["name"].transform("size") > 1
    shown_best = rows[several & rows["is_best"] & (rows["p_strictly_best"] >= LIKELY) & ~rows["is_bound"]]  # fmt: skip
    if len(shown_best):
        yield f"{SHOWN_BEST}: {listed(list(dict.fromkeys(shown_best['name'])))}."


def _own_case(rows: pd.DataFrame, folder: str) -> str:
    if _is_given(rows):
        return "Other numbers: ckptbench decide, or docs/calculator.html"
    return f"Your case: ckptbench decide --study {folder} --gpus 256 --mtbf 14h"
