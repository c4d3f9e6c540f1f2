"""An answer in every form in which it is printed: a table in text, settings to copy, and JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ckptbench.cli.case import Choice, answer
from ckptbench.cli.options import Options
from ckptbench.cli.sentences import asked
from ckptbench.decide.model import LEAST_USEFUL, rounded
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.quantities import (
    PERCENT,
    Quantity,
    duration,
    saved,
    span,
    unit_of_time,
)
from ckptbench.report.answer.screen import (
    AT_BEST,
    AT_LEAST,
    AT_MOST,
    NONE_HELPS,
    NOW,
    WIDTH,
    printed,
    saves_at,
    waiting,
)

Settings = tuple[tuple[str, str], ...]
"""Of programs: how each is told the number of steps."""
SAVE_STEPS: Settings = (
    ("Transformers", "save_steps={steps}"),
    ("Lightning", "ModelCheckpoint(every_n_train_steps={steps})"),
    ("torchtitan", "--checkpoint.interval={steps}"),
    ("Megatron-LM", "--save-interval {steps}"),
)
"""Of those that need no log."""
BLOCKING_ONLY = ("Transformers",)
"""Programs that have no asynchronous saves."""


def is_conclusive(choice: Choice) -> bool:
    """Whether its interval can be recommended."""
    return choice.steps.is_conclusive and not helps_nothing(choice)


def at_least(choice: Choice) -> str:
    """What stands before an interval."""
    return AT_LEAST if choice.is_bound else ""


def helps_nothing(choice: Choice) -> bool:
    """Whether next to nothing gets done at the best interval either."""
    return choice.loses.value > 1 - LEAST_USEFUL and not choice.is_bound


def not_needed(choice: Choice, training_steps: int | None) -> str:
    """A sentence, where the whole training is not longer than the best interval. Else empty."""
    steps = round(choice.steps.value) if is_conclusive(choice) else 0
    if training_steps is None or steps < training_steps:
        return ""
    return (
        f"No save is needed against failures: the best interval, {counted(steps, 'step')}, is not shorter than the training,"
        f" {counted(training_steps, 'step')}. Save at the end, before the time limit."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer."""

    text: str
    gpus: int
    failures_per_s: float
    choices: tuple[Choice, ...]
    """In the order of the text."""
    remarks: tuple[str, ...]
    training_steps: int | None = None
    """Of the whole training, where its log says it."""
    settings: Settings = SAVE_STEPS
    """Of programs, or of the one whose log was read."""
    multiple_of: int | None = None

    def save_steps(self) -> str:
        """Settings to copy, for each strategy."""
        return "".join(f"{line}\n" for choice in self.choices for line in self._settings(choice))

    def json(self) -> str:
        """Text. docs/decision.md says what its keys mean."""
        content = {
            "gpus": self.gpus,
            "failures_per_s": self.failures_per_s,
            "training_steps": self.training_steps,
            "strategies": [_content(each) for each in self.choices],
            "remarks": list(self.remarks),
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def _settings(self, choice: Choice) -> Iterator[str]:
        if sentence := not_needed(choice, self.training_steps):
            yield f"{choice.name}: {sentence[0].lower()}{sentence[1:]}"
            return
        if helps_nothing(choice):
            yield f"{choice.name}: no interval helps"
            return
        steps, lasts = settable(choice, self.multiple_of)
        best = choice.interval_s
        known = f" (best: {best.shown(unit_of_time(best.value))})" if best.lo < best.hi else ""
        yield f"{choice.name}: every {at_least(choice)}{counted(steps, 'step')}, {lasts}{known}"
        for program, setting in copied(choice, self.settings, steps):
            yield f"  {program:<14}{setting}"


def copied(choice: Choice, settings: Settings, steps: int) -> Iterator[tuple[str, str]]:
    """What to copy into each program that has such saves."""
    for program, setting in settings:
        if not (choice.is_async and program in BLOCKING_ONLY):
            yield program, setting.format(steps=steps)


def settable(choice: Choice, multiple_of: int | None) -> tuple[int, str]:
    """A round number of steps that is fine, and how long it is. A bound is not rounded: at least so many would say too much."""
    best = round(choice.steps.value)
    fine = choice.fine_steps if _has_range(choice) else None
    steps = rounded(best, fine or (best, best), multiple_of)
    return steps, duration(choice.interval_s.value * steps / choice.steps.value)


def _content(choice: Choice) -> dict[str, Any]:
    fine_from, fine_to = choice.fine_steps or (None, None)
    rarer, oftener = choice.other_s or (None, None)
    return {
        **_at(choice),
        "told": is_conclusive(choice),
        "bound": choice.is_bound,
        "fine_from_steps": fine_from,
        "fine_to_steps": fine_to,
        "interval_s_if_failures_a_third": rarer,
        "interval_s_if_failures_three_times": oftener,
        "now": None if choice.now is None else _at(choice.now),
        "saves_gpu_hours_a_day": choice.saves_gpu_hours,
    }


def _at(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.name,
        **{
            key: None if own is None else round(own)
            for key, own in _known("steps", choice.steps).items()
        },
        **_known("interval_s", choice.interval_s),
        **_known("loses", choice.loses),
        "at_least": choice.is_least,
    }


def _known(name: str, known: Quantity) -> dict[str, float | None]:
    ends = {"": known.value, "_lo": known.lo, "_hi": known.hi}
    return {f"{name}{end}": own if math.isfinite(own) else None for end, own in ends.items()}


def answer_from_options(options: Options) -> Answer:
    """Raises ConfigError or DataError where a file with a failure rate cannot be read."""
    case = options.case()
    choices = answer(case)
    sentences = (case.failing.said, *remarks(choices), *asked(options, choices, case.gpus))
    return Answer(
        text=table(choices) + "\n" + "".join(map(paragraph, sentences)),
        gpus=case.gpus,
        failures_per_s=float(case.failing.per_s[0]),
        choices=choices,
        remarks=sentences,
    )


GAP = 2
LONGEST_NAME, SHORTEST_NAME = 24, 8
"""A longer name is broken: at the latest here, and sooner where numbers need the room."""
Cells = tuple[str, str, str, str, str]
"""Name, interval, loss, what is saved, and the fine range."""


def table(choices: Sequence[Choice]) -> str:
    """Lines that each end with a line break. Fine ranges stand below the table where they do not fit."""
    rows = list(_cells(choices))
    below = ""
    if SHORTEST_NAME + _width(rows) > WIDTH:
        ranges = ", ".join(f"{_fine(each)} ({each.name})" for each in choices if _has_range(each))
        below = f"Fine: {ranges}." if ranges else ""
        rows = [(*row[:-1], "") for row in rows]
    longest = min(LONGEST_NAME, WIDTH - _width(rows))
    return _laid_out(rows, longest) + (paragraph(below) if below else "")


def paragraph(text: str) -> str:
    """The text in lines of `WIDTH`, each with a line break."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False) + "\n"


def remarks(choices: Sequence[Choice]) -> Iterator[str]:
    """Sentences on the numbers."""
    now = choices[0].now
    if now is not None and len(choices) > 1:
        yield f"The interval in use is taken to be of {now.name}."
    if now is not None and now.waits_s > 0:
        yield waiting(now.name, NOW, now.waits_s)
    for choice in choices:
        if choice.waits_s > 0:
            yield waiting(choice.name, AT_BEST, choice.waits_s)
        if not choice.steps.is_conclusive:
            unit = unit_of_time(choice.interval_s.value)
            between = span(choice.interval_s.lo, choice.interval_s.hi, unit)
            yield f"{choice.name}: the best interval may be {between}: begin with {duration(choice.interval_s.value)}; more failures counted on your machine narrow it."
    others = [choice.other_s for choice in choices if choice.other_s is not None]
    if len(others) == len(choices) and all(map(is_conclusive, choices)):
        rarer, oftener = (", ".join(map(duration, every)) for every in zip(*others, strict=True))
        yield f"Best with a third as many failures: {rarer}; with three times as many: {oftener}."


def _cells(choices: Sequence[Choice]) -> Iterator[Cells]:
    unit = " GPU-hours a day"  # said once
    now = choices[0].now
    for choice in (*([now] if now else []), *choices):
        saves = _saves(choice)
        yield (
            "now" if choice is now else choice.name,
            _interval(choice, in_use=choice is now),
            f" loses {AT_MOST if choice.is_bound else ''}{choice.loses.shown(PERCENT)}",
            f" {saves}{unit}" if saves else "",
            f" (fine: {_fine(choice)})" if _has_range(choice) else "",
        )
        unit = "" if saves else unit


def _width(rows: Sequence[Cells]) -> int:
    """Of all columns but the names, with the gaps before them."""
    widths = (max(map(len, column)) for column in list(zip(*rows, strict=True))[1:])
    return sum(GAP + width for width in widths if width)


def _laid_out(rows: Sequence[Cells], longest_name: int) -> str:
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(overflow="fold", max_width=longest_name)
    grid.add_column(justify="right", no_wrap=True)
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    for _ in columns[2:]:
        grid.add_column(no_wrap=True)
    for cells in zip(*columns, strict=True):
        grid.add_row(*cells)
    return "".join(f"{line}\n" for line in printed(grid, WIDTH + GAP))


def _saves(choice: Choice) -> str:
    """`saves 182`, or `costs 182 more`: GPU-hours a day. Empty where there is nothing to compare with."""
    if choice.now is None or choice.saves_gpu_hours is None or helps_nothing(choice):
        return ""
    bound = saves_at(choice.now.steps.value, choice.steps.value) if choice.is_bound else ""
    saves = saved(choice.saves_gpu_hours)
    return f"costs {bound}{saves[1:]} more" if saves.startswith("-") else f"saves {bound}{saves}"


def _interval(choice: Choice, *, in_use: bool) -> str:
    if helps_nothing(choice) and not in_use:
        return NONE_HELPS
    before = "" if in_use else at_least(choice)
    return before + choice.interval_s.shown(unit_of_time(choice.interval_s.value))


def _has_range(choice: Choice) -> bool:
    """Whether its fine range is known. That of a bound is not: it lies higher where failures are rarer."""
    return choice.fine_steps is not None and not (helps_nothing(choice) or choice.is_bound)


def _fine(choice: Choice) -> str:
    assert choice.fine_steps is not None
    step_s = choice.interval_s.value / choice.steps.value
    lo, hi = (steps * step_s for steps in choice.fine_steps)
    return span(lo, hi, unit_of_time(choice.interval_s.value))
