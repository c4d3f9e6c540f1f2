"""What the page starts from, as plain values for JSON: cases, failure rates, and how numbers are read and said.

A case is a list of pairs in the words of the command's options, such as `("gpus", "256")`, `("now", "2h")` and, once for each strategy, `("blocking", "60s")` or
`("async", "sharded=3s+90s")`. What a table of costs says is known beside it with all digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.schema import Row
from ckptbench.config.decision import DecisionSection
from ckptbench.decide import BETWEEN, RATE_FACTORS, sampling
from ckptbench.decide.inputs import GIVEN, STARTS, UNFINISHED
from ckptbench.decide.model import LEAST_USEFUL, LONGEST, MOST_STEPS, ROUND
from ckptbench.decide.rates import OWN, FailureRate
from ckptbench.decide.units import DAYS_PER_MONTH
from ckptbench.matrix.interval import Interval
from ckptbench.report.answer import quantities
from ckptbench.report.answer.labels import counted, describe, name
from ckptbench.report.answer.quantities import unit_of_time
from ckptbench.report.answer.setups import (
    PANEL_COLUMNS,
    SEPARATOR,
    faceted,
    in_words,
    ordered,
    with_hardware,
)

EXAMPLE = (
    ("gpus", "256"), ("mtbf", "14h"), ("step", "2.5s"), ("blocking", "60s"), ("async", "3s+90s"), ("restart", "8min"), ("now", "2h"),
)  # fmt: skip
"""From which the page starts without a table of costs."""
PREEMPTIBLE = (
    ("gpus", "8"), ("mtbf", "3h"), ("step", "1.5s"), ("blocking", "45s"), ("restart", "6min"), ("now", "1h"),
)  # fmt: skip
EXAMPLES = {
    "Example: 7B on 256 GPUs": EXAMPLE,
    "Example: 8 GPUs, preemptible": PREEMPTIBLE,
}
"""With invented numbers."""
MEASURED = "measured"
PLACES = 3
"""Significant digits of a measured time in a field. The page computes with all of them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a program is given the interval."""

    text: str
    """With `{steps}`."""
    blocking_only: bool
    """Whether it has no asynchronous saves."""
    async_text: str = ""
    """What switches them on, behind the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the log of a training says besides its costs."""

    training_steps: int | None
    """Of the whole training."""
    settings: tuple[Setting, ...]
    """Of the program that wrote it."""
    multiple_of: int | None
    """Steps that an interval should be a multiple of."""


ANY_PROGRAM = (Setting("save_steps={steps}", blocking_only=True),)
"""Without a log: as in most scripts."""


def measured_cases(costs: pd.DataFrame, choices: DecisionSection) -> list[Row]:
    """One for each setup and recovery of the table `decision_costs`, that with the most ranks of the first system first."""
    rows = _named(costs[costs["representative"]])
    most = rows.groupby("system", sort=False)["ranks"].transform("max") == rows["ranks"]
    # The interval in use is that of the first strategy.
    today = rows["strategy"].isin(rows.loc[rows["today"], "strategy"]) & rows["framework"].eq(GIVEN)
    ordered = rows.assign(most=most, today=today).sort_values(
        ["most", "today"], ascending=False, kind="stable"
    )
    groups = ordered.groupby(["system", "ranks", "recovery"], sort=False)
    return [_case(records(group), choices) for _, group in groups]


def _named(costs: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of figures, with the names that readers choose from."""
    columns = (*PANEL_COLUMNS, "framework", "ranks", "strategy", "format", "recovery")
    known = faceted(ordered(with_hardware(costs), columns))
    named = [SEPARATOR.join(filter(None, (name(each), facet))) for each, facet in zip(known["framework"], known["facet"], strict=True)]  # fmt: skip
    in_setup = known.groupby(["framework", "facet", "ranks", "recovery", "strategy"])
    several = [
        column for column in ("format", "interval") if (in_setup[column].nunique() > 1).any()
    ]
    return known.assign(
        system=known["model"].where(known["framework"] == GIVEN, pd.Series(named, known.index, dtype=object)),
        named=in_words(known, ["strategy", *several], ", "),
    )  # fmt: skip


def _case(rows: Sequence[Row], choices: DecisionSection) -> Row:
    first = rows[0]
    given = first["framework"] == GIVEN
    ranks, epoch = int(first["ranks"]), int(first["steps_per_epoch"])
    where = counted(ranks, "GPU" if given else "rank")
    strategies = [_strategy(row, ranks) for row in rows]
    slower = _estimate(sampling.slower_by_recovery(first))
    step_s = _estimate(sampling.step_s(first)) * slower
    restarts = {each["down"] for each in strategies}
    restart_s = strategies[0]["down"] if len(restarts) == 1 else None
    steps = Interval.parse(first["interval"]).steps(epoch)
    return {
        "title": SEPARATOR.join([first["system"], where, describe("recovery", first["recovery"])]),
        "how": "given" if given else MEASURED,
        "how_of": {
            "step": _how(first, "step_s"),
            "restart": " and ".join(sorted({_how(row, "down_s") for row in rows})),
        },
        "where": where if given else f"{where} on {first['hardware']}",
        "source": ". ".join(
            text[0].upper() + text[1:] for text in (first["source"], first["note"]) if text
        ),
        "ranks": ranks,
        "replaces": bool(first["replaces"]),
        "pairs": [
            ("gpus", str(max(choices.gpus, default=ranks))),
            ("rate", choices.rate),
            ("step", in_a_field(step_s)),
            *(each.pop("pair") for each in strategies),
            ("restart", "as in the study" if restart_s is None else in_a_field(restart_s)),
            *([("now", counted(steps, "step").replace(",", ""))] if steps else []),
        ],
        "step": step_s,
        "slower": slower,
        "restart": restart_s,
        "strategies": strategies,
    }


def _how(row: Row, cost: str) -> str:
    """How this cost of the row is known: an option may have taken the place of a measured one."""
    if cost == "down_s" and row["down_from"] == STARTS:
        return "not measured, assumed to be a start plus a load"
    is_exact = row[f"{cost}_lo"] == row[f"{cost}_hi"]
    return "given" if row["framework"] == GIVEN or is_exact else MEASURED


def _strategy(row: Row, ranks: int) -> Row:
    saving, global_tier = sampling.saving(row), sampling.global_tier(row, ranks)
    values = {
        "stall": saving.stall_s,
        "durable": saving.durable_s,
        "slowdown": saving.slowdown_s,
        "slower": sampling.slower_by_strategy(row),
        "down": sampling.down_s(row),
        "pause": sampling.pause_s(row),
        "survived": sampling.survived(row),
        "globalTier": 0.0 if global_tier is None else global_tier.saving.durable_s,
    }
    known = {cost: _estimate(each) for cost, each in values.items()}
    stall_s, durable_s = known["stall"], known["durable"]
    own, text = row["named"], in_a_field(stall_s)
    # Where it may be durable as soon as training goes on, it is a blocking one.
    waits = not row["durable_s"] > np.fmax(row["stall_s"], row["stall_s_hi"])
    pair = ("blocking", f"{own}={text}") if waits else ("async", f"{own}={text}+{in_a_field(durable_s - stall_s)}")  # fmt: skip
    every = int(row["shared_every"])
    return {**known, "least": UNFINISHED in row["note"], "name": own, "pair": pair, "every": every, "copied": bool(row["copied"]), "growth": json.loads(row["growth"] or "null")}  # fmt: skip


def _estimate(values: ArrayLike) -> float:
    """The first one, without the draws behind it."""
    return float(np.asarray(values).flat[0])


def in_a_field(seconds: float) -> str:
    """A time as people write it."""
    unit = unit_of_time(seconds)
    return f"{float(f'{seconds * unit.scale:.{PLACES}g}'):g} {unit.name}"


def payload(
    costs: pd.DataFrame | None,
    rates: Sequence[FailureRate],
    choices: DecisionSection,
    log: Log | None = None,
    also: Sequence[tuple[str, str]] = (),
) -> Row:
    """The page starts with the first setup of the table `decision_costs`, else with an example. The chosen rate is one of `rates`."""
    examples = [{"title": title, "how": "", "pairs": pairs, "strategies": []} for title, pairs in EXAMPLES.items()]  # fmt: skip
    measured = [] if costs is None else measured_cases(costs, choices)
    of_log = {} if log is None else asdict(log)
    return {
        "cases": [
            *({**case, **of_log, "pairs": [*case["pairs"], *also]} for case in measured),
            *examples,
        ],
        "rates": [_rate(rate) for rate in rates],
        "settings": [asdict(each) for each in ANY_PROGRAM],
        "own": OWN,
        "survivable": sampling.SURVIVABLE,
        "replacement_s": sampling.REPLACEMENT_S,
        "gpus_per_node": choices.gpus_per_node,
        "longest": LONGEST,
        "most_steps": MOST_STEPS,
        "round": ROUND,
        "other_rates": RATE_FACTORS,
        "between": BETWEEN,
        "least_useful": LEAST_USEFUL,
        "words": _words(),
    }


def _rate(rate: FailureRate) -> Row:
    """Mean GPU-hours between failures, and the ends of their interval where it has one, before what `of_jobs` makes of them. A bound: no failure was seen."""
    interval = [rate.lo, rate.hi] if 0 < rate.lo < rate.hi < math.inf else []
    ends = None if rate.log is None else rate.log.of_jobs
    return {
        "name": rate.name,
        "of_jobs": None if ends is None else asdict(ends),
        "title": rate.file.title,
        "source": rate.source,
        "hours": [rate.mean_gpu_hours, *interval],
        "bound": rate.is_bound,
    }


def _words() -> Row:
    """The constants of `answer/quantities.py`: words.js has its functions."""
    values = ("TIMES", "SIZES", "BANDWIDTHS", "LARGEST", "MOST", "DIGITS", "MOST_DIGITS", "NARROW", "STEPS_WIDE", "NOT_ZERO", "SAVED_FROM", "TELLS")  # fmt: skip
    units = [{**asdict(unit), "longest": longest} for unit, longest in quantities.LONGEST]
    return {
        **{name.lower(): getattr(quantities, name) for name in values},
        **{
            name.lower(): getattr(quantities, name).pattern
            for name in ("PART", "STEPS", "COUNT", "PRICE")
        },
        "units": [*units, asdict(quantities.DAYS)],
        "days_per_month": DAYS_PER_MONTH,
    }
