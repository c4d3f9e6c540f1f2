"""Sentences of an answer on what some options ask beside it: the size that was counted, money, and the time limit of a job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ckptbench.cli.options import Options
from ckptbench.cli.room import on_disk
from ckptbench.cli.values import Price
from ckptbench.decide.costs import Notice
from ckptbench.decide.units import DAYS_PER_MONTH, HOURS_PER_DAY
from ckptbench.report.answer.at_limit import LATE, AtLimit
from ckptbench.report.answer.cells import AT_MOST, saves_at
from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import listed
from ckptbench.report.answer.quantities import duration, percent, size

LARGE = (("trillion", 1e12), ("billion", 1e9), ("million", 1e6))
PREEMPTED = "A published rate excludes preemptions, which lose work too unless training saves at the signal."
AS_SUDDEN = "Preemptions that are announced count as sudden ones: --warning says what a save at their signal loses."
PHASE = "With few saves in a job, brackets also cover where the last one falls before the limit"
MOST_NAMED = 2
"""Of more strategies only the best one is named."""


def asked(options: Options, choices: Sequence[Choice], gpus: int) -> Iterator[str]:
    """Nothing where no option asks."""
    if options.disk is not None:
        yield from on_disk(options.disk, choices)
    if (state := options.counted) is not None:
        yield f"A checkpoint of {_words(state.params)} parameters: {size(state.size).replace('.0 ', ' ')}, {state.bytes_each} bytes each ({state.counted()})."
    told = (
        choices if len(choices) <= MOST_NAMED else [min(choices, key=lambda each: each.loses.value)]
    )
    if options.gpu_hour_price is not None:
        yield _money(options.gpu_hour_price, told, gpus)
    if options.limit is not None:
        yield from _limit(options.limit, told, is_one=len(choices) == 1)
        if options.rate is not None:
            yield PREEMPTED


def on_warning(
    notice: Notice | None, needs: Sequence[tuple[str, float]], step_s: float
) -> Iterator[str]:
    """Whose saves fit into the warning. `needs`: how long a save of each strategy takes until it is durable."""
    if notice is None:
        return
    saves = []
    for fits in (True, False):
        names = [f"{name} ({duration(needs_s)})" for name, needs_s in needs if (needs_s + step_s <= notice.seconds) == fits]  # fmt: skip
        if names:
            saves.append(f"{'in time' if fits else 'too late'}: {', '.join(names)}")
    yield f"Of the failures {percent(notice.announced)} are announced {duration(notice.seconds)} before. A step of up to {duration(step_s)} ends, then training saves, {'; '.join(saves)}."


def on_preemptions(options: Options) -> Iterator[str]:
    """For `--explain`, where preemptions may be among the failures."""
    if options.warning is not None:
        return
    with_limit = options.limit is not None and options.rate is None and not options.is_limit_alone
    if with_limit or "PREEMPTED" in (options.count or ()):
        yield AS_SUDDEN


def _words(number: float) -> str:
    """`7 billion`."""
    name, scale = next((each for each in LARGE if number >= each[1]), ("", 1.0))
    return f"{number / scale:,.6g} {name}".rstrip()


def _money(price: Price, choices: Sequence[Choice], gpus: int) -> str:
    if choices[0].now is None:
        losses = (
            f"{each.name} loses {AT_MOST * each.is_bound}{_sum(price, each.loses.value * HOURS_PER_DAY * gpus)}"
            for each in choices
        )
        return f"Money, at {price} a GPU-hour: {'; '.join(losses)}."
    now = choices[0].now
    today = (
        f"now loses {AT_MOST * now.is_bound}{_sum(price, now.loses.value * HOURS_PER_DAY * gpus)}"
    )
    return f"Money, at {price} a GPU-hour: {'; '.join([today, *(_saved(price, each) for each in choices)])}."


def _saved(price: Price, choice: Choice) -> str:
    assert choice.now is not None
    hours = 0.0 if choice.saves is None else choice.saves.value
    bound = saves_at(choice.now.steps.value, choice.steps.value) if choice.is_bound else ""
    verb, more = ("saves", "") if hours >= 0 else ("costs", " more")
    return f"{choice.name} {verb} {bound}{_sum(price, abs(hours))}{more}"


def _sum(price: Price, gpu_hours_a_day: float) -> str:
    a_day, a_month = (price.of(gpu_hours_a_day * days) for days in (1, DAYS_PER_MONTH))
    return f"{a_day} a day, {a_month} a month"


def _limit(limit_s: float, choices: Sequence[Choice], *, is_one: bool) -> Iterator[str]:
    """Without and with a save at a signal, a sentence each."""
    ends = f"A job ends after {duration(limit_s)}"
    known = {each.name: each.at_limit for each in choices if each.at_limit is not None}
    if not known:
        yield f"The training ends before the {duration(limit_s)} limit."
        return
    if all(each.loses.value >= 1 for each in known.values()):
        yield f"{ends}, before a restart and a save are done: save quicker, or ask for longer jobs."
        return
    lost = ", ".join(
        duration(each.lost_s) + f" ({name})" * (not is_one) for name, each in known.items()
    )
    yield f"{ends}: at the best interval that loses {lost} of work on average, and a restart. The table counts both."
    yield from _by_phase(choices)
    bounds = {each.name for each in choices if each.is_bound}
    saved = (
        f"{name} " * (not is_one) + _at_signal(each, is_bound=name in bounds)
        for name, each in known.items()
    )
    yield f"With a save at a signal before the end: {'; '.join(saved)}."
    if late := [each.signal_s for each in known.values() if each.is_late_by_torchrun]:
        yield f"torchrun {LATE.format(seconds=max(late))}."


def _by_phase(choices: Sequence[Choice]) -> Iterator[str]:
    """Where not many saves fit into a job."""
    now = choices[0].now
    rows = [("now", now)] if now else []
    exact = [
        f"{name} loses {percent(each.losses.exactly)}"
        for name, each in (*rows, *((each.name, each) for each in choices))
        if each.losses is not None and each.losses.exactly is not None
    ]
    if exact:
        yield f"{PHASE}. If all takes exactly as long as given, {listed(exact)}."


def _at_signal(limit: AtLimit, *, is_bound: bool) -> str:
    more, most = (" or more", AT_MOST) if is_bound else ("", "")
    often = (
        f"every {duration(limit.interval_s)}{more}"
        if limit.interval_s < math.inf
        else "no other save"
    )
    return f"{often}, loses {most}{percent(limit.loses.value)} (send the signal {limit.signal_s:,} s before the end)"
