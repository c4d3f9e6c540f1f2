"""Sentences on the tables `advice` and `scale`: how often to checkpoint, with what, and how to recover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.answer.labels import counted, describe
from ckptbench.answer.setups import SEPARATOR
from ckptbench.decide.advice import DIFFERING
from ckptbench.decide.inputs import GIVEN, STARTS, UNKNOWN_SLOWDOWN
from ckptbench.figures.findings.lines import item
from ckptbench.figures.findings.words import (
    PERCENT,
    Row,
    Unit,
    amount,
    bounded,
    capitalized,
    listed,
)
from ckptbench.figures.kit.decided import of_most_ranks, prepared

TITLE = "How often to checkpoint"
NOTHING = (
    "Nothing to decide from: no setup has both timed checkpoints at the level shared and a recovery whose cost is known. Add setups with checkpoints and"
    " the recovery restart."
)
HOURS_PER_DAY = 24
DAYS_PER_YEAR = 365.25
MINUTES_PER_HOUR = 60
LIKELY = 0.95
"""A setup is the best where it is better than all others in at least this part of the draws."""
MATTERS = 1.05
"""A step that may take so many times as long is told."""
SMALLEST = 1e-5
"""A smaller part of the time than this is said to be so."""
NEXT_TO_NOTHING = 0.01
"""Where even the best interval has less goodput than this, no interval is recommended."""
ASSUMED = (
    "Projected: more GPUs than were measured. One measured rank stands for one GPU, also where it ran on CPU. A step, a checkpoint and a recovery are"
    " taken to cost there what they cost here, and failures to come in proportion to the GPUs."
)
ASSUMED_OF_GIVEN = (
    "Projected: more GPUs than the numbers were given for. A step, a checkpoint and a recovery are taken to cost there what they cost at that number, and failures to come"
    " in proportion to the GPUs."
)
INTERVALS = "In brackets are 95 % intervals; those of the best interval are in the table advice."
OTHER = (
    "For other numbers, such as your own number of GPUs: open results/decision.html in a browser, or set decision.gpus in the config."
    " For fewer GPUs than the costs are of, use the page."
)
SURVIVED = "Survivors are taken to go on from {part:.0f} % of all failures: from those that hit one node alone (decision.survivable), in the part in which they did{measured}. Where the recovery does not put a new rank in the place of a lost one, one is taken to come after some time (decision.replacement_minutes)."


def sentences(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """From the tables that `DECISION` names.

    For each system the setup and recovery that win: first as measured, then projected, then from how many GPUs on which one wins."""
    advice = tables["advice"]
    chosen = tables["scale"]["rate"].unique()
    known = advice[advice["rate"].isin(chosen)]
    if known.empty:
        return
    rates = tables["failure_rates"].set_index("rate")
    rate = str(rates.loc[chosen[0], "title"])
    rows = of_most_ranks(prepared(known))
    winners = rows[rows["wins"]]
    yield from bounded(
        [_of(row, rate) for row in records(winners[~winners["projected"]])], "advice"
    )
    projected = winners[winners["projected"]]
    yield from bounded([_of(row, rate) for row in records(projected)], "advice")
    yield from bounded(list(_from_how_many(tables["scale"])), "scale")
    if len(projected):
        yield ASSUMED_OF_GIVEN if (projected["framework"] == GIVEN).all() else ASSUMED
    if (winners["survived"] > 0).any():
        yield SURVIVED.format(
            part=100 * winners["survived"].max(), measured=_of_kills(tables["decision_costs"])
        )
    yield from _about_costs(tables["decision_costs"])
    yield OTHER
    yield from _checked(tables["validation"])


def _of(row: Row, rate: str) -> str:
    """`On this machine, with PyTorch, ..., a checkpoint every 40 steps (2 minutes) loses 3 % [2, 4]; every epoch would lose 9 % [8, 10].`"""
    lost = {
        f"{name}{end}": 1 - row[f"{column}{other}"]
        for name, column in (
            ("best", "goodput"),
            ("epoch", "goodput_every_epoch"),
            ("in_use", "goodput_in_use"),
        )
        for end, other in (("", ""), ("_lo", "_hi"), ("_hi", "_lo"))
    }
    where = (
        f"Projected to {row['gpus']:,} GPUs"
        if row["projected"]
        else ("At" if row["framework"] == GIVEN else "On this machine, at")
        + f" {counted(row['gpus'], 'GPU' if row['framework'] == GIVEN else 'rank')}"
    )
    steps = (row["flat_from_steps"], row["flat_to_steps"])
    begin = f"{where}, with {_setup(row)} and a failure every {duration(row['hours_between_failures'])} ({rate}),"
    best = f"every {_steps(row['best_steps'])} ({duration(row['best_minutes'] / MINUTES_PER_HOUR)})"
    if row["goodput"] < NEXT_TO_NOTHING:
        return f"{begin} next to nothing gets done: even a checkpoint {best}, the best interval, loses {_part(lost, 'best')}."
    return (
        f"{begin} a checkpoint {best} loses {_part(lost, 'best')}; every epoch"
        f" ({_steps(row['epoch_steps'])}) would lose {_part(lost, 'epoch')}. Anything from {_number(steps[0])} to {_steps(steps[1])} is within 1 %"
        f" of the best.{_in_use(row, lost)}"
    )


def _in_use(row: Row, lost: Row) -> str:
    """` The 24 steps in use are as good.` Of costs that a user gives: a study has no interval in use."""
    steps = row["in_use_steps"]
    if row["framework"] != GIVEN or steps == row["epoch_steps"]:
        return ""
    if row["flat_from_steps"] <= steps <= row["flat_to_steps"]:
        return f" The {_steps(steps)} in use {'is' if steps == 1 else 'are'} as good."
    return (
        f" The {_steps(steps)} in use {'loses' if steps == 1 else 'lose'} {_part(lost, 'in_use')}."
    )


def _setup(row: Row) -> str:
    words = [
        row["system"].replace(SEPARATOR, ", "),
        describe("strategy", row["strategy"]),
        describe("recovery", row["recovery"]),
    ]
    return ", ".join(words)


def _part(lost: Row, name: str) -> str:
    """`3 % [2, 4]`. Small parts are only said to be small."""
    if lost[f"{name}_hi"] < SMALLEST:
        return f"less than {_plain_percent(SMALLEST)} %"
    return amount(lost, name, PERCENT)


def _plain_percent(part: float) -> str:
    return f"{100 * part:.10f}".rstrip("0")


def _steps(number: float) -> str:
    return f"{_number(number)} step{'' if round(number) == 1 else 's'}"


def _number(number: float) -> str:
    """Rounded to three digits, as nobody sets an interval of 3,217 steps."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}"


def duration(hours: float) -> str:
    """`12 s`, `5.2 minutes`, `3.1 hours`, `40 days`, `12 years`."""
    for name, scale, most in (
        ("s", 3600.0, 1 / 60),
        ("minutes", 60.0, 2.0),
        ("hours", 1.0, 48.0),
        ("days", 1 / HOURS_PER_DAY, 2 * DAYS_PER_YEAR * HOURS_PER_DAY),
    ):
        if hours < most:
            return f"{amount({'n': hours * scale}, 'n', Unit(''))} {name}"
    return f"{amount({'n': hours / HOURS_PER_DAY / DAYS_PER_YEAR}, 'n', Unit(''))} years"


def _from_how_many(scale: pd.DataFrame) -> Iterator[str]:
    """`PyTorch: up to 512 GPUs no strategy and recovery is shown to be better than all others by 0.1 points; from 1,024 GPUs on the highest goodput
    is that of deepfreeze, ulfm.`"""
    rows = of_most_ranks(prepared(scale))
    for _, own in groups(rows, ("system", *SYSTEM)):
        if own.groupby("gpus").size().max() == 1:
            continue
        winners = own[own["wins"]].sort_values("gpus")
        winners = winners.assign(best=winners["series"].where(winners["alone"] >= LIKELY, ""))
        runs = winners["best"].ne(winners["best"].shift()).cumsum()
        stretches = [stretch for _, stretch in winners.groupby(runs)]
        parts = [
            f"{_where(stretch, place, len(stretches))} {_which(stretch['best'].iloc[0])}"
            for place, stretch in enumerate(stretches)
        ]
        yield f"{own['system'].iloc[0].replace(SEPARATOR, ', ')}: {'; '.join(parts)}."


def _which(best: str) -> str:
    if best:
        return f"the highest goodput is that of {best}"
    return "no strategy and recovery is shown to be better than all others by 0.1 points"


def _where(stretch: pd.DataFrame, place: int, number: int) -> str:
    first, last = stretch["gpus"].iloc[[0, -1]]
    if number == 1:
        return f"at every number of GPUs up to {last:,}"
    if place == 0:
        return f"up to {last:,} GPUs"
    return f"from {first:,} GPUs on" if place == number - 1 else f"from {first:,} to {last:,} GPUs"


def _about_costs(costs: pd.DataFrame) -> Iterator[str]:
    """What to know of the costs before quoting."""
    started = costs["down_from"] == STARTS
    if started.any():
        yield (
            f"No restart from a version was measured with {_how_many(started)}: it is taken to last as long as the start of a run, and to load a version as"
            " long as to write one. A study of failures (config/studies/faults.yaml) measures it."
        )
    measured = costs[costs["down_from"] != GIVEN]
    if measured[[f"{name}_lo" for name in DIFFERING]].isna().any(axis=None):
        yield "Some costs have no interval, as they were measured once: the table decision_costs shows which."
    if costs["note"].str.contains(UNKNOWN_SLOWDOWN, regex=False).any():
        yield f"{capitalized(UNKNOWN_SLOWDOWN)}, in some setups (table decision_costs)."
    yield from _of_elastic(costs)


def _of_elastic(costs: pd.DataFrame) -> Iterator[str]:
    """What recoveries cost where nothing fails."""
    # Where it may only be so, that is why the intervals of this recovery are wide.
    may_be = (costs["slower"] > 1) | (costs["slower_hi"] > MATTERS)
    slower = costs[may_be].drop_duplicates([*SYSTEM, "slower"])
    for row in records(prepared(slower.assign(gpus=slower["ranks"]))) if len(slower) else []:
        yield (
            f"{row['system'].replace(SEPARATOR, ', ')}, {counted(row['ranks'], 'rank')}: where nothing fails a step takes {amount(row, 'slower', Unit('times'))} as long with"
            f" {describe('recovery', row['recovery'])} as without it. This is counted{', as at least 1' if row['slower'] < 1 else ''}."
        )


def _checked(rows: pd.DataFrame) -> Iterator[str]:
    """Whether failures that really came agree with the model."""
    if rows.empty:
        return
    holds, off = int(rows["holds"].sum()), (rows["measured"] - rows["predicted"]).abs().median()
    yield (
        f"Checked against failures that really came: in {holds} of {counted(len(rows), 'setup')} the measured goodput lies in the predicted 95 % interval; the"
        f" median distance is {100 * off:.1f} points (figure validation)."
    )


def _of_kills(costs: pd.DataFrame) -> str:
    """` where it was measured: in 5 of 6 kills with ulfm, and in 2 of 2 with torchft`; nothing where it was given."""
    known = costs[costs["survived_of"] > 0].drop_duplicates([*SYSTEM, "recovery"])
    parts = []
    for recovery, own in known.groupby("recovery"):
        number = int(own["survived_of"].sum())
        went_on = round(float((own["survived"] * own["survived_of"]).sum()))
        parts.append(
            f"{went_on} of {counted(number, 'kill')} with {describe('recovery', recovery)}"
        )
    return f" where it was measured: in {listed(parts)}" if parts else ""


def _how_many(which: pd.Series) -> str:
    return "any setup" if which.all() else f"{int(which.sum())} of {len(which)} setups"


def page(tables: Mapping[str, pd.DataFrame]) -> str:
    """The sentences alone, as text: what `make decide` prints."""
    said = list(sentences(tables)) or [NOTHING]
    lines = [TITLE, "-" * len(TITLE), "", INTERVALS, "", *map(item, said), ""]
    return "\n".join(lines)
