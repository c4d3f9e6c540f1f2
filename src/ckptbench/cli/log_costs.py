"""The costs that the logs of a training tell, completed by options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from ckptbench.analysis.cost.statistics import Estimate
from ckptbench.cli.checks import MISSING, missing_rate, too_many_shares
from ckptbench.cli.costs import Costs
from ckptbench.cli.options import Options
from ckptbench.common.errors import ConfigError
from ckptbench.config.values import LARGEST_NUMBER, one_line
from ckptbench.decide.inputs import UNFINISHED
from ckptbench.decide.user_costs import UserCosts, costs_table
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.shown import show
from ckptbench.report.answer.labels import counted, listed
from ckptbench.report.answer.quantities import duration
from ckptbench.report.answer.study import SHOWN_BEST

if TYPE_CHECKING:
    from ckptbench.decide.training_log.facts import Facts
    from ckptbench.decide.training_log.slow import Slow


UNTOLD = "A log shows neither the full slowdown during asynchronous saves nor when a checkpoint is on storage: ckptbench-probe measures both."
FROM_LOG = "as logged"
"""The name of the saves of a log, at any interval."""
BETWEEN_STARTS = " (between its starts)"
WAITS = "The restart is the gap between two starts in the log, with a wait for GPUs in it: --restart overrides it."
ASYNC_ASKED = "give your own stall and rest as in --async 3s+90s (ckptbench-probe measures both)"
ASK_NOW = "How often you save today is not in the log: give --now."


def costs_of_log(options: Options) -> Costs:
    """Those that the logs of a training tell, completed by the options.

    Raises ConfigError or DataError where the log cannot be read, and a usage error for all that neither it nor an option tells.
    """
    from ckptbench.decide.training_log.facts import facts_of
    from ckptbench.decide.training_log.joined import read_logs

    paths, log = read_logs(options.training_logs, options.log_pattern)
    facts = facts_of(log)
    if options.gpus is None and facts.gpus is None:
        options = options.with_gpus_of_log()
    whose = ", ".join(path.name for path in paths)
    read = f"Read {whose} as {facts.name}: {counted(facts.steps, 'step')}{f' (and {facts.again:,} made again)' if facts.again else ''}, {counted(facts.saves, 'save')}."
    if missing := [*missing_rate(options), *_missing(facts, options)]:
        raise click.UsageError("\n  ".join([f"{read} Still missing:", *missing]))
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
    return Costs(
        table,
        {},
        title=title if len(paths) == 1 else f"{len(paths)} logs",
        facts=tuple(_facts(facts, options)),
        cautions=tuple(_cautions(facts, options)),
        notes=(read, *_taken(facts, options)),
        training_steps=facts.planned,
        settings=settings,
        multiple_of=facts.multiple_of,
        restart_s=_restart_s(facts, options),
        gpus_from=options.gpus_from,
    )


def as_told(remarks: Iterable[str], options: Options, gpus: int) -> Iterator[str]:
    """The remarks; beside a log, that on the winner with the strategies whose costs an option gives."""
    told = [each.name for each in options.strategies(gpus)] if options.training_logs else []
    for remark in remarks:
        if told and remark.startswith(SHOWN_BEST):
            cost = "costs" if len(told) == 1 else "cost"
            yield f"{remark.removesuffix('.')}, if {listed(told)} {cost} what you say."
        else:
            yield remark


def _facts(facts: Facts, options: Options) -> Iterator[str]:
    """What the answer is computed from, of the log or in its place."""
    step_s = options.step or (facts.step.value if facts.step else None)
    if step_s is not None:
        yield f"step {duration(step_s)}"
    if facts.stall is not None and _keeps_saves(facts, options):
        yield f"save {duration(facts.stall.value)}"
    if (restart_s := _restart_s(facts, options)) is not None:
        yield f"restart {duration(restart_s)}{BETWEEN_STARTS * (options.restart is None)}"


def _restart_s(facts: Facts, options: Options) -> float | None:
    """By the option, else the middle one of those in the log."""
    if options.restart is not None or not facts.restarts_s:
        return options.restart
    return median(facts.restarts_s)


def _missing(facts: Facts, options: Options) -> Iterator[str]:
    """Each with the option that tells it."""
    if options.gpus is None and facts.gpus is None:
        yield MISSING["gpus"] + options.gpus_hint
    if options.step is None and facts.step is None:
        yield MISSING["step"]
    if _takes_stall(options) and facts.stall is None:
        why = (
            "the log does not say how long a save takes" if facts.saves else "the log shows no save"
        )
        if (guess := facts.guess) is not None:
            now = "" if options.now is not None else f" --now '{guess.every} steps'"
            why = f"the log names no save. A guess: {_slow(guess)}: if these are saves, give --blocking {as_option(guess.longer_s)}{now}"
        yield f"--blocking or --async: what a checkpoint costs, as in --blocking 2min; {why}"
    if _restart_s(facts, options) is None:
        yield MISSING["restart"]


def _takes_stall(options: Options) -> bool:
    return not (options.checkpoints or options.is_of_storage)


def _keeps_saves(facts: Facts, options: Options) -> bool:
    """Whether the saves of the log are a strategy, the one in use: where no option says what they cost."""
    is_told = options.blocking or (options.size is not None and not options.is_of_room)
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
        "recoveries": [{"name": "restart", "down_s": _restart_s(facts, options)}],
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
        once = ", from one save, so its uncertainty is unknown" if facts.saves == 1 else ""
        told.append(f"a save {_shown(facts.stall)}{once}{beside}{finished}")
    if options.now is None and facts.interval is not None:
        told.append(f"every {counted(facts.interval, 'step')}")
    if options.restart is None and facts.restarts_s:
        number, least, most = len(facts.restarts_s), facts.restarts_s[0], facts.restarts_s[-1]
        of = f", the median of {number} ({duration(least)} to {duration(most)})" if number > 1 else ""  # fmt: skip
        told.append(
            f"a restart {duration(median(facts.restarts_s))}{of}, from the last line before it to the first step behind it"
        )
    yield f"From the log: {'; '.join(told)}." if told else "All numbers come from the options."
    if _keeps_saves(facts, options):
        yield UNTOLD


def _cautions(facts: Facts, options: Options) -> Iterator[str]:
    """What to know before the answer is used."""
    if facts.saves and facts.interval is None and options.now is None:
        yield ASK_NOW
    if facts.background and facts.durable_s is None and _keeps_saves(facts, options):
        if options.asynchronous:
            yield "If the log's saves are asynchronous, more is lost than shown: the log does not say when they finish."
        elif facts.is_async:
            yield f"Saves are asynchronous, and the log does not say when they finish: {ASYNC_ASKED}, or take these losses as a minimum."
        else:
            yield f"If saves are asynchronous, the log does not say when they finish: {ASYNC_ASKED}, or they count as finished at once."
    if options.restart is None and facts.restarts_s:
        yield WAITS
    if facts.guess is not None and options.now is None and not _takes_stall(options):
        yield f"The log names no save. A guess: {_slow(facts.guess)}: if these are saves, give --now '{facts.guess.every} steps'."
    option, counts = ("--step", options.step is None) if facts.stall is None else ("--blocking", _keeps_saves(facts, options))  # fmt: skip
    if facts.aside and counts:
        yield f"{facts.aside}: give {option}."


def _slow(guess: Slow) -> str:
    return f"every {guess.every:,} steps one step takes {duration(guess.longer_s)} longer"


def as_option(seconds: float) -> str:
    """To two digits."""
    return f"{float(f'{seconds:.2g}'):g}s"


def _shown(known: Estimate) -> str:
    return duration(known.value, *known.interval)
