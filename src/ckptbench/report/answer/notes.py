"""Notes on the numbers of an answer, the same for every way in. Further ones come from what is asked for, and from the measurement of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.layout import NOW, Block
from ckptbench.report.answer.quantities import duration, plain, span, unit_of_time

AT_BEST = "at the best interval"
BOUND = "No failure was seen: the best interval is at least this, and the loss at most this."
LEGEND = "Fine: loses at most a fifth more than the best interval, restarts not counted, and at most one percentage point more."
BRACKETS = "Brackets: 95 % interval."


def waiting(name: str, when: str, seconds: float) -> str:
    """A sentence on saves that come faster than they are written."""
    return f"{name}: {when} each save waits {duration(seconds)} for the one before, which is still being written."


def on_now(blocks: Sequence[Block]) -> Iterator[str]:
    """Whose interval is in use, where no row says it and it can be that of several."""
    if len(blocks) != 1 or blocks[0].title:
        return
    choices = blocks[0].choices
    if (now := choices[0].now) is not None and (len(choices) > 1 or choices[0].is_async):
        steps = counted(round(now.steps.value), "step")
        yield f"Now: every {steps}, {now.name}; savings are against that."


def on_waiting(choices: Sequence[Choice]) -> Iterator[str]:
    """Saves that come faster than they are written."""
    now = choices[0].now
    if now is not None and now.waits_s > 0:
        yield waiting(now.name, NOW, now.waits_s)
    for choice in choices:
        if choice.waits_s > 0:
            yield waiting(choice.name, AT_BEST, choice.waits_s)


def on_wide(choices: Sequence[Choice]) -> Iterator[str]:
    """Intervals that are known badly."""
    for choice in choices:
        if not choice.steps.is_conclusive:
            unit = unit_of_time(choice.interval_s.value)
            between = span(choice.interval_s.lo, choice.interval_s.hi, unit)
            yield f"{choice.name}: the best interval may be {between}: start with {duration(choice.interval_s.value)}; counting more failures on your machine narrows it."


def on_other_rates(block: Block) -> Iterator[str]:
    """The best intervals at other rates, in the unit of the table. Of a rate that was counted nothing is said."""
    choices = block.choices
    if not all(choice.other_s is not None and choice.is_conclusive for choice in choices):
        return
    unit = block.time
    if all(
        len({plain(each_s * unit.scale) for each_s in choice.other_s or ()}) == 1
        for choice in choices
    ):
        return  # something else bounds them
    titled = block.place and len(choices) == 1  # the title says which it is
    names = ["" if titled else f"{choice.shown_name} " for choice in choices]
    each = [
        f"{name}{plain(choice.other_s[0] * unit.scale)} or {plain(choice.other_s[1] * unit.scale)} {unit.name}"
        for name, choice in zip(names, choices, strict=True)
        if choice.other_s is not None
    ]
    between = "; " if any("," in name for name in names) else ", "
    where = f", {block.place}" if block.place else ""
    yield f"At 1/3 or 3 times the failures{where}: {between.join(each)}."


def explained(blocks: Sequence[Block]) -> Iterator[str]:
    """For `--explain`: how to read the table."""
    yield LEGEND
    choices = [choice for block in blocks for choice in block.choices]
    if any(known.lo < known.hi for each in choices for known in (each.interval_s, each.loses)):
        yield BRACKETS
