"""An answer in every form in which it is printed: a table in text, settings to copy, and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from ckptbench.cli.case import answer
from ckptbench.cli.options import Options
from ckptbench.cli.room import to_keep, without_memory
from ckptbench.cli.sentences import asked, on_preemptions, on_warning
from ckptbench.decide.model import rounded
from ckptbench.report.answer.at_limit import LATE
from ckptbench.report.answer.cells import AT_LEAST, told
from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.layout import Block, Kind, Printed
from ckptbench.report.answer.notes import explained, on_now, on_other_rates, on_waiting, on_wide
from ckptbench.report.answer.programs import NO_ASYNC, NO_SIGNAL, PROGRAMS, USUAL, rows
from ckptbench.report.answer.quantities import Quantity, duration, unit_of_time
from ckptbench.report.answer.screen import WIDTH, Screen, printed

Settings = tuple[tuple[str, str], ...]
"""Of programs: how each is told the number of steps."""
SAVE_STEPS: Settings = tuple((PROGRAMS[tool].name, PROGRAMS[tool].setting) for tool in USUAL)
"""Of those that need no log."""
ALIKE = 1.1
"""An interval that is so many times the best one loses next to nothing more."""
AT_SIGNAL = {each.name: each.at_signal for each in PROGRAMS.values()}
"""What makes programs save at it."""
ASYNC = {each.name: each.background for each in PROGRAMS.values() if each.background is not None}
"""What switches asynchronous saves on. Without it the same interval would block."""
BLOCKING_ONLY = ("nanoGPT", *(each.name for each in PROGRAMS.values() if each.background is None))
"""Programs that have none."""


STYLES: Mapping[Kind, Mapping[str, Any]] = {
    Kind.TITLE: {"underline": True},
    Kind.BEST: {"bold": True, "fg": "green"},
    Kind.WARNING: {"fg": "red"},
    Kind.ADVICE: {"bold": True},
}
"""How lines look on a terminal."""
NOW_KEYS = ("name", *(f"{name}{end}" for name in ("steps", "interval_s", "loses") for end in ("", "_lo", "_hi")), "at_least")  # fmt: skip


def painted(line: Printed) -> str:
    """For a terminal with colours."""
    return click.style(line.text, **STYLES.get(line.kind, {}))


def at_bound(choice: Choice) -> str:
    """What is known of a strategy where no failure was seen: no number that a program can be told."""
    steps = counted(round(choice.steps.value), "step")
    apart = duration(choice.interval_s.value)
    return f"no failure was seen, so there is no setting to copy: save {AT_LEAST}{steps} ({apart}) apart"


def not_needed(choice: Choice, training_steps: int | None) -> str:
    """A sentence, where the whole training is not longer than the best interval. Else empty."""
    steps = round(choice.steps.value) if choice.is_conclusive else 0
    if training_steps is None or steps < training_steps:
        return ""
    return (
        f"No save is needed against failures: the best interval, {counted(steps, 'step')}, is not shorter than the training,"
        f" {counted(training_steps, 'step')}. Save at the end, before the time limit."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer."""

    screen: Screen
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
    warnings: tuple[str, ...] = ()
    """What to know before a setting is copied."""
    tools: tuple[str, ...] = ()
    """The programs whose settings are asked for."""
    disk: float | None = None
    """Bytes of room for checkpoints."""

    def text(self, width: int = WIDTH, *, explain: bool = False, color: bool = False) -> str:
        """The table with its notes, at most so wide; and below it what to paste into the programs that are asked for, which is not broken."""
        lines = printed(self.screen, width, explain=explain)
        pasted = ["", *self._settings(self._for_tools)] if self.tools and self.choices else []
        return "".join(f"{painted(line) if color else line.text}\n" for line in lines) + "".join(
            f"{line}\n" for line in pasted
        )

    @property
    def _for_tools(self) -> Choice:
        """The one that loses least of those that all the programs can do."""
        can_do = all(each == "slurm" or PROGRAMS[each].background is not None for each in self.tools)  # fmt: skip
        able = [each for each in self.choices if can_do or not each.is_async]
        return min(able or self.choices, key=lambda each: each.loses.value)

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

    def csv(self) -> str:
        """One row per strategy, with the keys of JSON as columns: of the interval in use they begin with `now_`."""
        rows = [_flat(_content(each)) for each in self.choices]
        if not rows:
            return ""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def _settings(self, choice: Choice) -> Iterator[str]:
        if sentence := not_needed(choice, self.training_steps):
            yield f"{choice.name}: {sentence[0].lower()}{sentence[1:]}"
            return
        if choice.helps_nothing:
            yield f"{choice.name}: no interval helps"
            return
        if choice.is_bound:
            yield f"{choice.name}: {at_bound(choice)}"
            return
        steps, lasts = settable(choice, self.multiple_of)
        best = choice.interval_s
        value, ends = told(best, unit_of_time(best.value))
        known = f" (best: {value} {ends})" if ends else ""
        yield f"{choice.name}: every {counted(steps, 'step')}, {lasts}{known}"
        found = [] if self.tools else [*copied(choice, self.settings, steps)]
        for tool in self.tools:
            keep = None if self.disk is None else to_keep(self.disk, choice.bytes)
            lasts_s = choice.interval_s.value * steps / choice.steps.value
            found += rows(tool, steps=steps, interval_s=lasts_s, stop_s=choice.stop_s, is_async=choice.is_async, keep=keep)  # fmt: skip
        for program, setting in found:
            yield f"  {program:<14}{setting}"
        yield from self._at_signal(choice)

    def _at_signal(self, choice: Choice) -> Iterator[str]:
        """The same if training saves at a signal before the time limit, and how Slurm sends it."""
        if choice.at_limit is None:
            return
        known = choice.at_limit
        if known.interval_s < math.inf:
            best = round(known.interval_s * choice.steps.value / choice.interval_s.value)
            near = (math.ceil(best / ALIKE), math.floor(best * ALIKE))
            steps = rounded(best, near, self.multiple_of)
            lasts = duration(known.interval_s * steps / best)
            yield f"{choice.name}, if training saves at a signal: every {counted(steps, 'step')}, {lasts}"
        else:
            yield f"{choice.name}, if training saves at a signal: no other save"
        for program, setting in (
            ("Slurm", PROGRAMS["slurm"].every),
            *(
                (name, AT_SIGNAL.get(name, NO_SIGNAL))
                for name, _ in self.settings
                if name != "Slurm"
            ),
            *([("torchrun", LATE)] if known.is_late_by_torchrun else []),
        ):
            yield f"  {program:<14}{setting.format(seconds=known.signal_s)}"


def copied(choice: Choice, settings: Settings, steps: int) -> Iterator[tuple[str, str]]:
    """What to copy into each program, with what switches asynchronous saves on; or that it has none."""
    for program, setting in settings:
        if choice.is_async and program in BLOCKING_ONLY:
            yield program, NO_ASYNC
        else:
            yield program, setting.format(steps=steps) + ASYNC.get(program, "") * choice.is_async


def settings_of(options: Options, usual: Settings) -> Settings:
    """Of the programs that are asked for, else the usual ones."""
    asked_for = tuple((PROGRAMS[each].name, PROGRAMS[each].setting) for each in options.tools)
    return asked_for or usual


def settable(choice: Choice, multiple_of: int | None) -> tuple[int, str]:
    """A round number of steps that is fine, and how long it is."""
    best = round(choice.steps.value)
    fine = choice.fine_steps if choice.has_range else None
    steps = rounded(best, fine or (best, best), multiple_of)
    return steps, duration(choice.interval_s.value * steps / choice.steps.value)


def _content(choice: Choice) -> dict[str, Any]:
    fine_from, fine_to = choice.fine_steps or (None, None)
    rarer, oftener = choice.other_s or (None, None)
    return {
        **_at(choice),
        "told": choice.is_conclusive,
        "bound": choice.is_bound,
        "fine_from_steps": fine_from,
        "fine_to_steps": fine_to,
        "interval_s_if_failures_a_third": rarer,
        "interval_s_if_failures_three_times": oftener,
        "now": None if choice.now is None else _at(choice.now),
        **_known("saves_gpu_hours_a_day", choice.saves or NOTHING),
    }


def _flat(content: dict[str, Any]) -> dict[str, Any]:
    """With the interval in use in columns of its own, also where there is none."""
    now = content["now"] or dict.fromkeys(key for key in NOW_KEYS)
    beside = {key: own for key, own in content.items() if key != "now"}
    return beside | {f"now_{key}": now[key] for key in NOW_KEYS}


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


NOTHING = Quantity(math.nan)


def _known(name: str, known: Quantity) -> dict[str, float | None]:
    ends = {"": known.value, "_lo": known.lo, "_hi": known.hi}
    return {f"{name}{end}": own if math.isfinite(own) else None for end, own in ends.items()}


def answer_from_options(options: Options) -> Answer:
    """Raises ConfigError or DataError where a file with a failure rate cannot be read."""
    case = options.case()
    refused, lacking = without_memory(
        ((each.name, bool(each.saving.durable_s > each.saving.stall_s), case.size) for each in case.strategies),
        options.memory,
        options.shared_by or case.gpus,
    )  # fmt: skip
    case = replace(case, strategies=tuple(each for each in case.strategies if each.name not in refused))  # fmt: skip
    choices = answer(case)
    block = Block(choices=choices)
    notes = (
        case.failing.said,
        *case.failing.sure,
        *on_waiting(choices),
        *on_now([block]),
        *on_wide(choices),
        *on_other_rates(block),
    )
    needs = [(each.name, float(each.saving.durable_s)) for each in case.strategies]
    warned = on_warning(case.notice, needs, case.step_s)
    advised = (*case.failing.doubts, *lacking, *warned, *asked(options, choices, case.gpus))
    return Answer(
        screen=Screen(
            title=f"{counted(case.gpus, 'GPU')} ({options.gpus_from})" if options.gpus_from else "",
            blocks=(block,),
            advice=advised,
            remarks=notes,
            explained=(*explained([block]), *on_preemptions(options)),
        ),
        gpus=case.gpus,
        failures_per_s=0.0 if options.is_limit_alone else float(case.failing.per_s[0]),
        choices=choices,
        warnings=case.failing.doubts,
        remarks=(*advised, *notes),
        settings=settings_of(options, SAVE_STEPS),
        tools=options.tools,
        disk=options.disk,
    )
