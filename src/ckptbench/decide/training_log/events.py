"""What the lines of a log say, in order: steps, saves, and what else takes time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.forms import Form
from ckptbench.decide.training_log.lines import bar_name, seconds_of, stamp_in, whole_time
from ckptbench.matrix.shown import show

LARGEST = 1e12
"""No step, and no time since 1970 in seconds, is beyond it."""
COARSE_S, FINE_S = 1.0, 0.001
"""How far a time without a fraction of a second, and one with it, may be off."""


class Event(NamedTuple):
    """One line's."""

    kind: Literal["step", "save", "finished", "pause", "gpus", "loss", "total", "start"]
    step: int | None = None
    at_s: float | None = None
    """When the line was printed."""
    seconds: float | None = None
    """How long it took, as the line says."""
    number: int = 0
    """Of GPUs; of all steps of a training; of a step of a bar, of how many."""
    background: bool = False
    """Whether a save goes on, or may go on, while the training does."""
    bar: str = ""
    """The name of the bar that counts the step."""
    is_marked: bool = False
    """Whether that bar shows a loss."""


@dataclass(slots=True)
class Log:
    """A log of one form."""

    form: Form
    events: list[Event] = field(default_factory=list)
    resolution_s: float = FINE_S
    """How far times may be off."""
    interval: int | None = None
    """Steps between saves, where the log itself says it."""
    is_async: bool = False
    """Whether it says for sure that saves go on beside the training."""
    planned: int | None = None
    """Steps of the whole training, where the log says it."""
    multiple_of: int | None = None
    """Of so many steps an interval may have to be a multiple: they are those between evaluations."""
    step_s: float | None = None
    """Of the whole run, where no single step has a time."""

    @property
    def has_steps(self) -> bool:
        return any(event.kind == "step" for event in self.events)


def read_lines(lines: Iterable[str], form: Form, where: str) -> Log:
    """The log, as one of this form. Raises DataError where a user's expression finds no number."""
    log = Log(form)
    for number, line in enumerate(lines, 1):
        found = [
            match
            for hint, pattern in form.lines
            if hint in line
            for match in pattern.finditer(line)
        ]
        try:
            for match in sorted(found, key=re.Match.start):
                log.events += _events(match, line, log)
        except ValueError as error:
            raise DataError(f"{where}: line {number}: {error}") from None
    return log


def _events(match: re.Match[str], line: str, log: Log) -> Iterator[Event]:
    """Raises ValueError with the remedy."""
    told = {name: text for name, text in match.groupdict().items() if text is not None}
    step = _whole("step", told["step"]) if "step" in told else None
    at = stamp_in(line)
    if log.form.has_own_clock:
        at = whole_time(line, *match.span("time")) if "time" in told else None
    at_s = time_of(at, log) if at else None
    if "gpus" in told:
        yield Event("gpus", number=math.prod(map(int, re.findall(r"\d+", told["gpus"]))))
    elif "all" in told:
        log.planned = _whole("all", told["all"])
        yield Event("total", number=log.planned)
    elif "loss" in told and step is None:
        yield Event("loss")
    elif "finished" in told or "finished_s" in told:
        yield Event("finished", step, at_s, _duration("finished", told))
    elif "pause" in told or "pause_s" in told:
        yield Event("pause", step, at_s, _duration("pause", told))
    else:
        saves = told.keys() & {"save", "save_s", "save_ms", "background"}
        took_s = _duration("step", told)
        if step is not None and (took_s is not None or not saves):
            total = int(told.get("total", 0))
            log.planned = int(told.get("planned", 0)) or log.planned
            bar = bar_name(line, match.start()) if total else ""
            yield Event("step", step + log.form.from_zero, at_s, took_s, total, False, bar, "loss" in told)  # fmt: skip
        if saves:
            log.is_async = log.is_async or "background" in told
            may_go_on = "background" in told or "perhaps" in told
            yield Event("save", step, at_s, _duration("save", told), 0, may_go_on)


def _duration(name: str, told: dict[str, str]) -> float | None:
    for unit, scale in (("s", 1.0), ("ms", 0.001)):
        if (text := told.get(f"{name}_{unit}")) is not None:
            return scale * _number(f"{name}_{unit}", text)
    return None


def _whole(name: str, text: str) -> int:
    number = _number(name, text)
    if number != int(number):
        raise ValueError(f"{name} is {show(text)}: let (?P<{name}>...) match a whole number")
    return int(number)


def _number(name: str, text: str) -> float:
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        number = math.nan
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{name} is {show(text)}: let (?P<{name}>...) match only a number from 0")
    return number


def time_of(text: str, log: Log) -> float | None:
    """In seconds. None where a stamp of a line is none; raises ValueError where an expression says that it is one."""
    try:
        seconds = seconds_of(text)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not abs(seconds) <= LARGEST:
        if not log.form.has_own_clock:
            return None  # a date as 2026-99-99 is none
        raise ValueError(
            f"time is {show(text)}: let (?P<time>...) match seconds, 1:07:21, or a time as 2026-01-31 08:00:00"
        )
    if "." not in text and "," not in text:
        log.resolution_s = COARSE_S
    return seconds
