"""The costs that the log of a training tells, completed by the options, and what is to know of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import click
import pandas as pd
from pydantic import ValidationError

from ckptbench.analysis.cost.statistics import Estimate
from ckptbench.answer.labels import counted
from ckptbench.answer.quantities import duration
from ckptbench.commands.asked import Asked
from ckptbench.commands.case import Choice
from ckptbench.commands.told import is_told
from ckptbench.decide.given import GivenCosts, costs_table
from ckptbench.decide.training_log.facts import Facts, facts_of
from ckptbench.decide.training_log.reader import read_log
from ckptbench.errors import ConfigError
from ckptbench.matrix.shown import show
from ckptbench.settings.values import LARGEST_NUMBER, one_line

UNTOLD = "A log does not tell all that steps lose beside an asynchronous save, nor when a checkpoint is on storage: ckptbench-probe does."
FROM_LOG = "save of the log"


@dataclass(frozen=True, slots=True)
class LogCosts:
    """The table `decision_costs`, and sentences on what was read."""

    table: pd.DataFrame
    notes: tuple[str, ...]

    @classmethod
    def of(cls, asked: Asked) -> Self:
        """Raises ConfigError or DataError where the log cannot be read, and a usage error for all that neither it nor an option tells."""
        assert asked.training_log is not None
        facts = facts_of(read_log(asked.training_log, asked.log_pattern))
        whose = asked.training_log.name
        read = f"Read {whose} as {facts.name}: {counted(facts.steps, 'step')}, {counted(facts.saves, 'save')}."
        if missing := [*asked.missing_rate(), *_missing(facts, asked)]:
            raise click.UsageError("\n  ".join([f"{read} It does not tell all:", *missing]))
        try:
            title = one_line(whose)
        except ValueError:
            title = "training log"
        try:
            given = GivenCosts.model_validate({"title": title, **_costs(facts, asked)})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ConfigError(f"{'.'.join(map(str, wrong['loc']))} is {show(wrong['input'])}, by {whose} and the options: {wrong['msg'].removeprefix('Value error, ')}") from None  # fmt: skip
        table = costs_table(given, f"costs of the log {title}, not measured here")
        return cls(table, (read, *_taken(facts, asked)))


def _missing(facts: Facts, asked: Asked) -> Iterator[str]:
    """Each with the option that tells it."""
    if asked.gpus is None and facts.gpus is None:
        yield "--gpus: how many train together"
    if asked.step is None and facts.step is None:
        yield "--step: how long one step takes"
    if _takes_stall(asked) and facts.stall is None:
        why = "it does not tell how long one takes" if facts.saves else "it names no save"
        yield f"--blocking or --async: what a checkpoint costs, as in --blocking 2min; {why}"
    if asked.now is None and facts.interval is None:
        yield '--now: how often you save today, as in --now "500 steps"'
    if asked.restart is None and facts.down is None:
        yield "--restart: how long it takes from a failure until training goes on"


def _takes_stall(asked: Asked) -> bool:
    return not (asked.blocking or asked.asynchronous or asked.state is not None)


def _costs(facts: Facts, asked: Asked) -> dict[str, Any]:
    gpus = asked.gpus or facts.gpus
    assert gpus is not None
    step = asked.step or _uncertain(facts.step)
    step_s = asked.step or (facts.step.value if facts.step else 0.0)
    interval = asked.now.in_steps(step_s) if asked.now is not None else facts.interval
    down = asked.down_s(asked.restart, gpus) if asked.restart is not None else _uncertain(facts.down)  # fmt: skip
    strategies: list[dict[str, Any]] = [
        {
            "name": each.name,
            "stall_s": float(each.saving.stall_s),
            "durable_s": float(each.saving.durable_s),
        }
        for each in asked.strategies(gpus)
    ]
    if _takes_stall(asked) and facts.stall is not None:
        durable_s = max(facts.durable_s or 0.0, facts.stall.value)
        slowdown = _uncertain(facts.slowdown) if facts.slowdown else 0.0
        strategies = [{"name": FROM_LOG, "stall_s": _uncertain(facts.stall), "durable_s": durable_s, "slowdown_s": slowdown}]  # fmt: skip
    return {
        "gpus": facts.gpus or gpus,
        "step_s": step,
        "steps_per_epoch": min(interval or 1, LARGEST_NUMBER),
        "interval": f"{interval} steps",
        "strategies": strategies,
        "recoveries": [{"name": "restart", "down_s": down}],
    }


def _uncertain(known: Estimate | None) -> dict[str, float] | float:
    assert known is not None
    lo, hi = known.interval
    if not 0 < lo <= known.value <= hi <= LARGEST_NUMBER:
        return known.value
    return {"value": known.value, "lo": lo, "hi": hi}


def _taken(facts: Facts, asked: Asked) -> Iterator[str]:
    """What of the log counts, where no option says it."""
    told = []
    if asked.step is None and facts.step is not None:
        told.append(f"a step {_shown(facts.step)}")
    if _takes_stall(asked) and facts.stall is not None:
        finished = f", finished after {duration(facts.durable_s)}" if facts.durable_s else ""
        beside = f", then slower steps up to the next line: {_shown(facts.slowdown)}" if facts.slowdown else ""  # fmt: skip
        told.append(f"a save {_shown(facts.stall)}{beside}{finished}")
    if asked.now is None and facts.interval is not None:
        told.append(f"every {counted(facts.interval, 'step')}")
    if asked.restart is None and facts.down is not None:
        told.append(f"a restart {_shown(facts.down)} ({facts.down_from})")
    yield f"It tells: {'; '.join(told)}." if told else "All numbers are those of the options."
    option, counts = ("--step", asked.step is None) if facts.stall is None else ("--blocking", _takes_stall(asked))  # fmt: skip
    if facts.aside and counts:
        yield f"{facts.aside}: give {option}."
    if facts.background and facts.durable_s is None and _takes_stall(asked):
        yield "If saves are asynchronous, it does not tell when they are finished: give --async 3s+90s, or they count as finished at once."
    if _takes_stall(asked):
        yield UNTOLD


def _shown(known: Estimate) -> str:
    return duration(known.value, *known.interval)


def setting(choices: tuple[Choice, ...]) -> str:
    """The sentence to copy from. Empty where no interval can be recommended."""
    best = choices[0]
    if not is_told(best):
        return ""
    steps = round(best.steps.value)
    return f"Save every {counted(steps, 'step')} ({duration(best.interval_s.value)}): save_steps={steps}"
