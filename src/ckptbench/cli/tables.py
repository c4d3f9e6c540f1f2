"""The answer from costs in a table: those that a study measured, those of a user's file, or what the log of a training tells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import pandas as pd
from pydantic import ValidationError

from ckptbench.analysis.cost.statistics import Estimate
from ckptbench.analysis.tables.grouping import records
from ckptbench.cli.case import AtLimit, Choice, fine_steps
from ckptbench.cli.checks import MISSING, missing_rate, too_many_shares
from ckptbench.cli.options import Options
from ckptbench.cli.printed import (
    SAVE_STEPS,
    Answer,
    Settings,
    at_least,
    copied,
    helps_nothing,
    not_needed,
    settable,
)
from ckptbench.cli.sentences import asked
from ckptbench.common.errors import ConfigError
from ckptbench.config.decision import DecisionSection
from ckptbench.config.identity import config_of
from ckptbench.config.values import LARGEST_NUMBER, one_line
from ckptbench.decide.advice import OTHER_RATES, advice
from ckptbench.decide.decision import failure_rates, left_out
from ckptbench.decide.inputs import DECISION_COSTS, GIVEN, UNFINISHED
from ckptbench.decide.limit import Limit
from ckptbench.decide.model import Saving
from ckptbench.decide.projection import projected
from ckptbench.decide.rates import FailureRate, published, read_rates
from ckptbench.decide.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.decide.user_costs import UserCosts, costs_table, read_user_costs
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.shown import show
from ckptbench.report.answer import STUDY_TABLES
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.quantities import Quantity, duration
from ckptbench.report.answer.screen import text
from ckptbench.report.answer.study import screen, shown

if TYPE_CHECKING:
    from ckptbench.decide.training_log.facts import Facts


def usual(**own: Any) -> DecisionSection:
    """The defaults of the section `decision`, with one's own choices in their place."""
    return DecisionSection().model_copy(update=own)


def answer_from_tables(options: Options) -> Answer:
    """The answer as the screen of a study. Raises ConfigError, DataError or RunFolderError where a file cannot be read."""
    costs = costs_of(options)
    gpus = options.gpus or costs.gpus
    rate = options.failure_rate(gpus)
    limit = _limit(options, costs)
    tables = decided(costs, rate, gpus, limit)
    choices = tuple(_choice(row, rate) for row in records(shown(tables)))
    if limit is not None:
        at_signal = decided(costs, rate, gpus, replace(limit, at_signal=True))
        choices = _limited(choices, tables, at_signal, limit)
    beside = (*_of_own(rate), *asked(options, choices, gpus))
    of_study = screen(tables)
    notes = (setting(choices, costs), *costs.notes) if costs.notes else ()
    config = config_of(options.study) if options.study else ""
    shown_screen = replace(
        of_study,
        verdict=(*filter(None, notes), *of_study.verdict),
        ending=(*beside, *([config] if config else [])),
    )
    return Answer(
        text=text(shown_screen),
        gpus=gpus,
        failures_per_s=gpus / (rate.mean_gpu_hours * SECONDS_PER_HOUR),
        choices=choices,
        remarks=(*shown_screen.verdict, *shown_screen.remarks, *beside),
        training_steps=costs.training_steps,
        settings=SAVE_STEPS if costs.settings is None else costs.settings,
        multiple_of=costs.multiple_of,
    )


def _limit(options: Options, costs: Costs) -> Limit | None:
    """That of a job. None where the whole training is done in one."""
    limit = options.time_limit
    if limit is None or costs.training_steps is None:
        return limit
    step_s, down_s = (float(costs.table[name].max()) for name in ("step_s", "down_s"))
    return limit if costs.training_steps * step_s + down_s > limit.seconds else None


def _limited(choices: tuple[Choice, ...], tables: Mapping[str, pd.DataFrame], at_signal: Mapping[str, pd.DataFrame], limit: Limit) -> tuple[Choice, ...]:  # fmt: skip
    """With what a job loses at its limit. `at_signal` are the tables where training saves at a signal."""
    rows = {row["name"]: row for row in records(shown(at_signal))}
    return tuple(
        replace(choice, at_limit=_at_limit(choice, row, rows[choice.name], limit))
        for choice, row in zip(choices, records(shown(tables)), strict=True)
    )


def _at_limit(choice: Choice, row: Mapping[str, Any], at_signal: Mapping[str, Any], limit: Limit) -> AtLimit:  # fmt: skip
    saving = Saving(stall_s=row["stall_s"], durable_s=row["durable_s"], slowdown_s=row["slowdown_s"])  # fmt: skip
    signal_s = at_signal["best_minutes"] * SECONDS_PER_MINUTE
    both_s = (choice.interval_s.value, signal_s)
    loses = Quantity.of(at_signal, "goodput").rest
    return AtLimit.of(limit, saving, row["down_s"], both_s, loses)


def _of_own(rate: FailureRate) -> Iterator[str]:
    """How sure the reader's own failures are."""
    said = () if rate.is_published else tuple(rate.said())
    if said:
        yield f"Of {rate.file.title}: {'; '.join(said)}."


def page_of_tables(options: Options) -> str:
    """The calculator, filled with these costs and the failure rate. Raises as `answer_from_tables`."""
    from ckptbench.report.page.html import page

    costs = costs_of(options)
    gpus = options.gpus or costs.gpus
    rate = options.failure_rate(gpus)
    others = [each for each in read_rates(published()) if each.name != rate.name]
    choices = usual(rate=rate.name, gpus=[gpus])
    return page(costs.table, [rate, *others], choices, costs.training_steps)


def costs_of(options: Options) -> Costs:
    """Those of the study, file or log, with what the options say in their place."""
    if options.training_logs:
        return costs_of_log(options)
    return Costs.of(options.study, options.costs).with_own(options)


def decided(
    costs: Costs, rate: FailureRate, gpus: int, limit: Limit | None = None
) -> Mapping[str, pd.DataFrame]:
    """The tables of the decision, for one failure rate and number of GPUs. Raises ConfigError where the costs are of more GPUs."""
    choices = usual(rate=rate.name, gpus=[gpus])
    if fewer := left_out(costs.table, choices):
        told = fewer[0].replace("decision.gpus has", "--gpus is")
        raise ConfigError(
            told.replace(
                ": they are not projected to fewer, so it is left out",
                ", which are not projected to fewer: leave it out",
            )
        )
    every = advice(costs.table, [rate], choices, limit)
    return {
        **costs.others,
        DECISION_COSTS.name: costs.table,
        "failure_rates": failure_rates([rate]),
        "advice": every[every["gpus"] == gpus],
        "scale": every[["rate"]],  # of which the screen takes the rate that was chosen
    }


@dataclass(frozen=True, slots=True)
class Costs:
    """The table `decision_costs`, and of a study those that say whether to believe it."""

    table: pd.DataFrame
    others: Mapping[str, pd.DataFrame]
    notes: tuple[str, ...] = ()
    """Sentences on where they are from, for the top of the screen."""
    training_steps: int | None = None
    """Of the whole training, where its log says it."""
    settings: Settings | None = None
    """How the program whose log was read is told the interval. None: any program."""
    multiple_of: int | None = None

    @classmethod
    def of(cls, study: Path | None, file: Path | None) -> Self:
        """From the folder of a study's tables, or from a user's file. Raises ConfigError or RunFolderError."""
        if study is not None:
            if not (study / f"{DECISION_COSTS.name}.parquet").exists():
                raise ConfigError(
                    f"{study} has no tables of a study: name its folder results/tables, or make one first (make study)"
                )
            from ckptbench.analysis.tables.store import read_tables

            others = read_tables(study, (DECISION_COSTS.name, *STUDY_TABLES))
            return cls(others.pop(DECISION_COSTS.name), others)
        assert file is not None
        return cls(read_user_costs(file), {})

    @property
    def gpus(self) -> int:
        """The most that they are of."""
        return int(self.table["ranks"].max())

    def with_own(self, options: Options) -> Self:
        """With what the reader gives in place of what the table says: a step, a restart on so many GPUs as are asked for, and an interval in use."""
        gpus = options.gpus or self.gpus
        rows = records(self.table[self.table["representative"]])
        return replace(
            self, table=DECISION_COSTS.rows(_with_own(row, options, gpus) for row in rows)
        )


def _with_own(row: Mapping[str, Any], options: Options, gpus: int) -> dict[str, Any]:
    own = dict(row)
    if options.step is not None:
        own |= _exactly("step_s", options.step)
    if options.restart is not None:
        # Projecting makes that of it which the reader gives.
        grown = projected({**row, "down_s": 1.0}, gpus)["down_s"]
        own |= {**_exactly("down_s", options.restart / grown), "down_from": GIVEN}
    if options.now is not None:
        own["interval"] = str(Interval("steps", options.now.in_steps(own["step_s"])))
    return own


def _exactly(name: str, value: float) -> dict[str, float]:
    return dict.fromkeys((name, f"{name}_lo", f"{name}_hi"), value)


def _choice(row: Mapping[str, Any], rate: FailureRate) -> Choice:
    """A row of the screen."""
    others = [row[f"best_minutes_{name}"] * SECONDS_PER_MINUTE for name in OTHER_RATES]
    step_s = row["best_minutes"] * SECONDS_PER_MINUTE / row["best_steps"]
    now = Choice(
        name=row["now_name"],
        is_least=UNFINISHED in row.get("now_note", ""),
        steps=Quantity(row["in_use_steps"]),
        interval_s=Quantity(row["in_use_steps"] * step_s),
        loses=Quantity.of(row, "goodput_in_use").rest,
        is_bound=rate.is_bound,
    )
    is_used = not math.isnan(row["in_use_steps"])
    return Choice(
        name=row["name"],
        steps=Quantity.of(row, "best_steps"),
        interval_s=Quantity.of(row, "best_minutes", SECONDS_PER_MINUTE),
        loses=Quantity.of(row, "goodput").rest,
        fine_steps=fine_steps(row["fine_from_steps"], row["fine_to_steps"]),
        saves_gpu_hours=row["saved_gpu_hours"] if is_used else None,
        is_least=UNFINISHED in row["note"],
        is_bound=rate.is_bound,
        now=now if is_used else None,
        is_async=bool(row["durable_s"] > max(row["stall_s"], row["stall_s_hi"])),
        other_s=None if rate.is_own_count else (others[0], others[1]),
    )


UNTOLD = "A log does not tell all that steps lose beside an asynchronous save, nor when a checkpoint is on storage: ckptbench-probe does."
FROM_LOG = "save of the log"


def costs_of_log(options: Options) -> Costs:
    """Those that the logs of a training tell, completed by the options.

    Raises ConfigError or DataError where the log cannot be read, and a usage error for all that neither it nor an option tells.
    """
    from ckptbench.decide.training_log.facts import facts_of
    from ckptbench.decide.training_log.joined import read_logs

    paths, log = read_logs(options.training_logs, options.log_pattern)
    facts = facts_of(log)
    whose = ", ".join(path.name for path in paths)
    read = f"Read {whose} as {facts.name}: {counted(facts.steps, 'step')}, {counted(facts.saves, 'save')}."
    if missing := [*missing_rate(options), *_missing(facts, options)]:
        raise click.UsageError("\n  ".join([f"{read} It does not tell all:", *missing]))
    for fault in too_many_shares(options, options.gpus or facts.gpus or 0):
        raise click.UsageError(fault)
    try:
        title = one_line(paths[0].name)
    except ValueError:
        title = "training log"
    try:
        given = UserCosts.model_validate({"title": title, **_costs(facts, options)})
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, wrong['loc']))} is {show(wrong['input'])}, by {whose} and the options: {wrong['msg'].removeprefix('Value error, ')}") from None  # fmt: skip
    table = costs_table(given, f"costs of the log {title}, not measured here")
    if _is_unfinished(facts):
        table = table.assign(note=table["note"].mask(table["strategy"] == FROM_LOG, UNFINISHED))
    if options.now is None and facts.interval is None:
        table = table.assign(interval=str(NEVER))
    settings = () if facts.setting is None else (facts.setting,)
    notes = (read, *_taken(facts, options))
    return Costs(table, {}, notes, facts.planned, settings, facts.multiple_of)


def _missing(facts: Facts, options: Options) -> Iterator[str]:
    """Each with the option that tells it."""
    if options.gpus is None and facts.gpus is None:
        yield MISSING["gpus"]
    if options.step is None and facts.step is None:
        yield MISSING["step"]
    if _takes_stall(options) and facts.stall is None:
        why = "it does not tell how long one takes" if facts.saves else "it names no save"
        yield f"--blocking or --async: what a checkpoint costs, as in --blocking 2min; {why}"
    if options.restart is None:
        yield MISSING["restart"]


def _takes_stall(options: Options) -> bool:
    return not (options.checkpoints or options.size is not None)


def _keeps_saves(facts: Facts, options: Options) -> bool:
    """Whether the saves of the log are a strategy, the one in use: where no option says what they cost."""
    is_told = options.blocking or options.size is not None
    return (
        facts.stall is not None
        and not is_told
        and not (options.asynchronous and _is_unfinished(facts))
    )


def _is_unfinished(facts: Facts) -> bool:
    """Whether saves are asynchronous, and the log does not tell when they are finished."""
    return facts.is_async and facts.durable_s is None


def _costs(facts: Facts, options: Options) -> dict[str, Any]:
    gpus = options.gpus or facts.gpus
    assert gpus is not None
    step = options.step or _uncertain(facts.step)
    step_s = options.step or (facts.step.value if facts.step else 0.0)
    interval = options.now.in_steps(step_s) if options.now is not None else facts.interval
    own: list[dict[str, Any]] = []
    if _keeps_saves(facts, options):
        assert facts.stall is not None
        durable_s = max(facts.durable_s or 0.0, facts.stall.value)
        slowdown = _uncertain(facts.slowdown) if facts.slowdown else 0.0
        own = [{"name": FROM_LOG, "stall_s": _uncertain(facts.stall), "durable_s": durable_s, "slowdown_s": slowdown}]  # fmt: skip
    named: list[dict[str, Any]] = [
        {
            "name": each.name,
            "stall_s": float(each.saving.stall_s),
            "durable_s": float(each.saving.durable_s),
        }
        for each in options.strategies(gpus)
    ]
    return {
        "gpus": facts.gpus or gpus,
        "step_s": step,
        "steps_per_epoch": min(interval or 1, LARGEST_NUMBER),
        "interval": f"{interval or 1} steps",
        "strategies": [*own, *named],
        "recoveries": [{"name": "restart", "down_s": options.restart}],
    }


def _uncertain(known: Estimate | None) -> dict[str, float] | float:
    assert known is not None
    lo, hi = known.interval
    if not 0 < lo <= known.value <= hi <= LARGEST_NUMBER:
        return known.value
    return {"value": known.value, "lo": lo, "hi": hi}


def _taken(facts: Facts, options: Options) -> Iterator[str]:
    """What of the log counts, where no option says it."""
    told = []
    if options.step is None and facts.step is not None:
        told.append(f"a step {_shown(facts.step)}")
    if facts.stall is not None and _keeps_saves(facts, options):
        finished = f", finished after {duration(facts.durable_s)}" if facts.durable_s else ""
        beside = f", then slower steps up to the next line: {_shown(facts.slowdown)}" if facts.slowdown else ""  # fmt: skip
        told.append(f"a save {_shown(facts.stall)}{beside}{finished}")
    if options.now is None and facts.interval is not None:
        told.append(f"every {counted(facts.interval, 'step')}")
    yield f"It tells: {'; '.join(told)}." if told else "All numbers are those of the options."
    option, counts = ("--step", options.step is None) if facts.stall is None else ("--blocking", _keeps_saves(facts, options))  # fmt: skip
    if facts.aside and counts:
        yield f"{facts.aside}: give {option}."
    if facts.background and facts.durable_s is None and _keeps_saves(facts, options):
        if options.asynchronous:
            yield "If the saves of the log are asynchronous, it does not tell when they are finished, and more is lost than it shows."
        elif facts.is_async:
            yield "Saves are asynchronous, and it does not tell when they are finished: give --async 3s+90s, or losses are at least these."
        else:
            yield "If saves are asynchronous, it does not tell when they are finished: give --async 3s+90s, or they count as finished at once."
    if _keeps_saves(facts, options):
        yield UNTOLD


def _shown(known: Estimate) -> str:
    return duration(known.value, *known.interval)


def setting(choices: tuple[Choice, ...], costs: Costs) -> str:
    """The sentence to copy from. Empty where no interval helps."""
    best = choices[0]
    if sentence := not_needed(best, costs.training_steps):
        return sentence
    if helps_nothing(best):
        return ""
    steps, lasts = settable(best, costs.multiple_of)
    name = f" with {best.name}" if len(choices) > 1 else ""
    words = "".join(f": {each}" for _, each in copied(best, costs.settings or (), steps))
    return f"Save every {at_least(best)}{counted(steps, 'step')} ({lasts}){name}{words}"
