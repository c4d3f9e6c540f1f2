"""The answer from costs in a table: those that a study measured, those of a user's file, or what the log of a training tells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
import pandas as pd

from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.schema import Row
from ckptbench.cli.case import FEW_SEEN, doubts, how_sure
from ckptbench.cli.costs import Costs
from ckptbench.cli.log_costs import FROM_LOG, as_told, costs_of_log
from ckptbench.cli.options import Options
from ckptbench.cli.printed import (
    ASYNC,
    BLOCKING_ONLY,
    SAVE_STEPS,
    Answer,
    at_bound,
    copied,
    not_needed,
    settable,
    settings_of,
)
from ckptbench.cli.room import sized, without_memory
from ckptbench.cli.sentences import asked, on_preemptions, on_warning
from ckptbench.common.errors import ConfigError
from ckptbench.config.decision import DecisionSection
from ckptbench.config.identity import config_of
from ckptbench.decide import sampling
from ckptbench.decide.advice import advice
from ckptbench.decide.costs import Notice, Saving
from ckptbench.decide.decision import failure_rates, left_out
from ckptbench.decide.inputs import DECISION_COSTS
from ckptbench.decide.limit import Limit
from ckptbench.decide.losses import Losses
from ckptbench.decide.rates import FailureRate, published, read_rates
from ckptbench.decide.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.report.answer.at_limit import AtLimit
from ckptbench.report.answer.cells import AT_LEAST
from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.layout import Block
from ckptbench.report.answer.notes import explained
from ckptbench.report.answer.programs import NO_ASYNC
from ckptbench.report.answer.quantities import Quantity, duration
from ckptbench.report.answer.study import screen, shown

TITLE_LETTERS = 24
"""Characters of the name of a log that are shown."""


def usual(**own: Any) -> DecisionSection:
    """The defaults of the section `decision`, with one's own choices in their place."""
    return DecisionSection().model_copy(update=own)


def answer_from_tables(options: Options) -> Answer:
    """Raises ConfigError, DataError or RunFolderError where a file cannot be read."""
    costs = costs_of(options)
    gpus = options.gpus or costs.gpus
    costs, lacking = _fitting(costs, options, gpus)
    rate = _rated(options, costs).failure_rate(gpus)
    limit = _limit(options, costs)
    if limit is None and options.is_limit_alone:
        raise click.UsageError(
            f"the training ends before the {duration(options.limit or 0.0)} limit, and no option says how often the job fails: give one, such as --mtbf 14h or --rate llama3"
        )
    notice = options.notice(rate)
    tables = decided(costs, rate, gpus, limit, notice)
    rows = records(shown(tables))
    of_study = screen(tables)
    blocks = tuple(_with_losses(of_study.blocks, rows, rate, limit, notice))
    if limit is not None:
        at_signal = decided(costs, rate, gpus, replace(limit, at_signal=True), notice)
        blocks = tuple(_limited(blocks, rows, records(shown(at_signal)), limit))
    blocks = tuple(sized(blocks, options))
    choices = tuple(choice for block in blocks for choice in block.choices)
    sentences = () if rate.is_published else how_sure(rate)
    found = replace(
        of_study,
        title=of_study.title if options.study else _facts(costs, rows[0], gpus, options),
        advice=(
            *filter(None, [setting(choices, costs) if options.training_logs else ""]),
            *doubts(rate),
            *lacking,
            *on_warning(notice, [*_needs(rows)], max((row["step_s"] for row in rows), default=0.0)),
            *asked(options, choices, gpus),
        ),
        blocks=blocks,
        remarks=(
            *(
                few := sentences[:1]
                if sentences and sentences[0].lower().startswith(FEW_SEEN)
                else ()
            ),
            *costs.cautions,
            *_sure(
                [*as_told(of_study.remarks, options, gpus)],
                sentences[len(few) :],
                has_facts=options.study is None,
            ),
        ),
        explained=(*costs.notes, *explained(blocks), *on_preemptions(options)),
        ending=tuple(config_of(options.study).splitlines()) if options.study else (),
    )
    per_s = gpus / (rate.mean_gpu_hours * SECONDS_PER_HOUR)
    return Answer(
        screen=found,
        gpus=gpus,
        failures_per_s=0.0 if options.is_limit_alone else per_s,
        choices=choices,
        warnings=(*costs.cautions, *doubts(rate)),
        remarks=(*found.advice, *costs.notes, *found.verdict, *found.remarks),
        training_steps=costs.training_steps,
        settings=settings_of(options, SAVE_STEPS if costs.settings is None else costs.settings),
        tools=options.tools,
        disk=options.disk,
        multiple_of=costs.multiple_of,
    )


def _rated(options: Options, costs: Costs) -> Options:
    """By which failures are counted: those within one restart of another as one."""
    return replace(options, restart=options.restart or costs.restart_s)


def _fitting(costs: Costs, options: Options, gpus: int) -> tuple[Costs, tuple[str, ...]]:
    """Without the strategies whose copy the memory of a node does not hold, and sentences on that."""
    known = ((row["strategy"], row["durable_s"] > row["stall_s"], options.size or _bytes(row)) for row in records(costs.table))  # fmt: skip
    refused, told = without_memory(known, options.memory, options.shared_by or gpus)
    fitting = costs.table[~costs.table["strategy"].isin(refused)]
    return replace(costs, table=fitting.reset_index(drop=True)), told


def _bytes(row: Row) -> float | None:
    return None if math.isnan(row["bytes"]) else float(row["bytes"])


def _needs(rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
    """How long a save at a warning takes until it is durable, also where nodes that are lost leave it."""
    for row in rows:
        is_two = row["shared_every"] > 1
        yield row["name"], max(row["durable_s"], row["shared_durable_s"] if is_two else 0.0)


def _limit(options: Options, costs: Costs) -> Limit | None:
    """That of a job. None where the whole training is done in one."""
    limit = options.time_limit
    if limit is None or costs.training_steps is None:
        return limit
    step_s, down_s = (float(costs.table[name].max()) for name in ("step_s", "down_s"))
    return limit if costs.training_steps * step_s + down_s > limit.seconds else None


def _limited(blocks: Sequence[Block], rows: Sequence[Row], at_signal: Sequence[Row], limit: Limit) -> Iterator[Block]:  # fmt: skip
    """With what a job loses at its limit. `at_signal` are the rows where training saves at a signal."""
    of, beside = ({row["name"]: row for row in each} for each in (rows, at_signal))
    for block in blocks:
        choices = (
            replace(each, at_limit=_at_limit(each, of[each.name], beside[each.name], limit))
            for each in block.choices
        )
        yield replace(block, choices=tuple(choices))


def _at_limit(choice: Choice, row: Row, at_signal: Row, limit: Limit) -> AtLimit:  # fmt: skip
    saving = Saving(stall_s=row["stall_s"], durable_s=row["durable_s"], slowdown_s=row["slowdown_s"])  # fmt: skip
    signal_s = at_signal["best_minutes"] * SECONDS_PER_MINUTE
    both_s = (choice.interval_s.value, signal_s)
    loses = Quantity.of(at_signal, "goodput").rest
    return AtLimit.of(
        limit, saving, both_s, down_s=row["down_s"], step_s=row["step_s"], loses=loses
    )


def _sure(remarks: Sequence[str], sentences: Sequence[str], *, has_facts: bool) -> Iterator[str]:
    """The remarks, with how sure failures are behind the one on them. What facts above the table say is not repeated."""
    on_failures, *others = remarks
    if not (has_facts and on_failures.startswith("Failures: ")):
        yield on_failures
    yield from sentences
    yield from others


def _facts(costs: Costs, row: Row, gpus: int, options: Options) -> str:
    """What the answer is computed from, in one line."""
    mtbf = duration(SECONDS_PER_HOUR * row["hours_between_failures"])
    known = costs.facts or (f"step {duration(row['step_s'])}",)
    title = (
        costs.title if len(costs.title) <= TITLE_LETTERS else f"{costs.title[:TITLE_LETTERS]}..."
    )
    failing = f"MTBF {AT_LEAST if row['is_bound'] else ''}{mtbf}"
    if options.is_limit_alone:
        failing = "no failures but the limit"
    source = f" ({costs.gpus_from})" if costs.gpus_from else ""
    return f"{title}: {counted(gpus, 'GPU')}{source}, {', '.join(known)}, {failing}"


def _with_losses(blocks: Sequence[Block], rows: Sequence[Row], rate: FailureRate, limit: Limit | None, notice: Notice | None) -> Iterator[Block]:  # fmt: skip
    """With what the time is lost to."""
    of = {(row["name"], row["gpus"]): row for row in rows}
    for block in blocks:
        ((_, gpus),) = {key for key in of if key[0] == block.choices[0].name}
        choices = []
        for choice in block.choices:
            now = choice.now and _split(choice.now, of[choice.now.name, gpus], rate, limit, notice)
            choices.append(
                replace(_split(choice, of[choice.name, gpus], rate, limit, notice), now=now)
            )
        # All have the same interval in use.
        first = choices[0].now
        yield replace(block, choices=tuple(replace(each, now=first) for each in choices))


def _split(
    choice: Choice, row: Row, rate: FailureRate, limit: Limit | None, notice: Notice | None
) -> Choice:
    gpus = row["gpus"]
    recovering = sampling.recovering(row, gpus, usual(rate=rate.name, gpus=[gpus]))
    if notice is not None:
        recovering = notice.before(recovering, sampling.slower(row) * sampling.step_s(row))
    lost = Losses.of(
        choice.interval_s.value,
        sampling.saving(row),
        recovering,
        sampling.failures_per_s(rate, gpus),
        global_tier=sampling.global_tier(row, gpus),
        slower=sampling.slower(row),
        limit=limit,
    )
    [(_, saved_s)] = _needs([row])
    return replace(choice, losses=lost, saved_s=saved_s, bytes=_bytes(row))


def page_of_tables(options: Options) -> str:
    """The calculator, filled with these costs and the failure rate. Raises as `answer_from_tables`."""
    from ckptbench.report.page.html import page
    from ckptbench.report.page.start import Log, Setting, in_a_field

    costs = costs_of(options)
    gpus = options.gpus or costs.gpus
    rate = _rated(options, costs).any_rate(gpus)
    others = [each for each in read_rates(published()) if each.name != rate.name]
    choices = usual(rate=rate.name, gpus=[gpus])
    log = None
    if costs.settings is not None:
        settings = tuple(Setting(text, program in BLOCKING_ONLY, ASYNC.get(program, "")) for program, text in costs.settings)  # fmt: skip
        log = Log(training_steps=costs.training_steps, settings=settings, multiple_of=costs.multiple_of)  # fmt: skip
    also = [("gpu-hour-price", str(price))] if (price := options.gpu_hour_price) else []
    if options.limit is not None:
        also.append(("limit", in_a_field(options.limit)))
    if (notice := options.notice(rate)) is not None:
        also += [("warning", in_a_field(notice.seconds)), ("announced", f"{100 * notice.announced:.3g}%")]  # fmt: skip
    return page(costs.table, [rate, *others], choices, log, also)


def costs_of(options: Options) -> Costs:
    """Those of the study, file or log, with what the options say in their place."""
    if options.training_logs:
        return costs_of_log(options)
    return Costs.of(options.study, options.costs).with_own(options)


def decided(
    costs: Costs,
    rate: FailureRate,
    gpus: int,
    limit: Limit | None = None,
    notice: Notice | None = None,
) -> Mapping[str, pd.DataFrame]:
    """The tables of the decision, for one failure rate and number of GPUs. Raises ConfigError where the costs are of more GPUs."""
    choices = usual(rate=rate.name, gpus=[gpus])
    if fewer := left_out(costs.table, choices):
        told = fewer[0].replace("decision.gpus has", "--gpus is")
        raise ConfigError(
            told.replace(
                ", which cannot be projected to fewer: left out",
                ", which cannot be projected to fewer: leave it out",
            )
        )
    every = advice(costs.table, [rate], choices, limit, notice)
    return {
        **costs.others,
        DECISION_COSTS.name: costs.table,
        "failure_rates": failure_rates([rate]),
        "advice": every[every["gpus"] == gpus],
        "scale": every[["rate"]],  # of which the screen takes the rate that was chosen
    }


def setting(choices: tuple[Choice, ...], costs: Costs) -> str:
    """The sentence to copy from. Empty where no interval helps."""
    best = choices[0]
    if sentence := not_needed(best, costs.training_steps):
        return sentence
    if best.helps_nothing:
        return ""
    if best.is_bound:
        return f"{best.name}: {at_bound(best)}."
    steps, lasts = settable(best, costs.multiple_of)
    whose = "the saves of the log" if best.name == FROM_LOG else best.name
    name = f" with {whose}" if len(choices) > 1 else ""
    if (
        best.now is not None
        and best.now.name == best.name
        and best.fine_steps is not None
        and best.fine_steps[0] <= best.now.steps.value <= best.fine_steps[1]
    ):
        return f"Save as now, every {counted(round(best.now.steps.value), 'step')}{name}: that is fine."
    words = "".join(
        f"; {program} {each}" if each == NO_ASYNC else f": {each}"
        for program, each in copied(best, costs.settings or (), steps)
    )
    return f"Save every {counted(steps, 'step')} ({lasts}){name}{words}"
