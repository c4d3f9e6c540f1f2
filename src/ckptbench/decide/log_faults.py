"""The faults of a log of failures, all at once, and its times, each checked as it is read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ckptbench.decide.moments import HELP, NOW, SECONDS, Moment, moment, now
from ckptbench.decide.watched import LogOptions
from ckptbench.matrix.shown import show

SHOWN_LINES = 3
"""Lines that are named of each kind of fault. The others are counted."""
CLOCK = re.compile(r"\d+:\d+(:\d+)?(\.\d+)?")


@dataclass(slots=True)
class Faults:
    """The faults of one file by kind, each with the lines that have it."""

    path: str
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By kind: the line that has it first, and its message."""
    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, kind: str, line: int, message: str) -> None:
        self.first.setdefault(kind, (line, message))
        self.lines.setdefault(kind, []).append(line)

    def text(self) -> str:
        """A line for each kind, in the order of the file: the first place, what to do, and the other places."""
        rows = sorted((line, kind, message) for kind, (line, message) in self.first.items())
        return "\n".join(
            f"{self.path}: line {line}: {message}{_others(self.lines[kind][1:])}"
            for line, kind, message in rows
        )


def _others(lines: Sequence[int]) -> str:
    if not lines:
        return ""
    shown = [str(line) for line in lines[:SHOWN_LINES]]
    if more := len(lines) - len(shown):
        shown.append(f"{more:,} more")
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f" (also line{'s' if len(lines) > 1 else ''} {listed})"


class Times:
    """The times of a log, all of one clock."""

    def __init__(self, options: LogOptions, faults: Faults) -> None:
        self.options, self.faults = options, faults
        self.first = options.begin or options.end

    def read(self, line: int, column: str, text: str) -> Moment | None:
        """None, and a fault, where it is no time or of another clock than the others."""
        where = f"{column} is {show(text)}"
        try:
            at = moment(text)
        except ValueError:
            rewritten = "" if "form" in self.faults.first else _rewritten(text)
            self.faults.add("form", line, f"{where}: {HELP}{rewritten}")
            return None
        if self.first is None or self._is_now(self.first, at):
            self.first = at
        if at.clock == self.first.clock:
            return at
        other = "`from`" if self.first is self.options.begin else self.first.written
        words = (
            f"it is {at.clock}, but {other} is {self.first.clock}: write all times in the same way"
        )
        self.faults.add("clock", line, f"{where}: {words}")
        return None

    def _is_now(self, end: Moment, at: Moment) -> bool:
        """Whether `to` is now and nothing else says of which clock: it is then of that of the first time."""
        if self.options.begin is not None or end.written != NOW or at.clock == SECONDS:
            return False
        self.options = replace(self.options, end=now(at.clock))
        return True

    def failed(self, line: int, column: str, text: str) -> Moment | None:
        """The time of a failure: while the GPUs were watched."""
        at, begin, end = self.read(line, column, text), self.options.begin, self.options.end
        if at is None:
            return None
        if (begin is None or begin.seconds < at.seconds) and (end is None or at.seconds <= end.seconds):  # fmt: skip
            return at
        span = f"from {begin.written if begin else 'its first failure'} to {end.written if end else 'its last'}"
        words = f"the log was kept {span}: remove the line, or correct `from` and `to`"
        self.faults.add("range", line, f"{column} is {show(text)}: {words}")
        return None


def _rewritten(text: str) -> str:
    """How to write the time so that it can be read, whichever of day and month comes first. Empty where it is no date."""
    import pandas as pd

    ways: dict[str, str] = {}
    if not re.search(r"\d", CLOCK.sub("", text)):
        return ""  # pandas would take it for a time of today
    for is_day, name in ((False, "month/day/year"), (True, "day/month/year")):
        with warnings.catch_warnings(action="ignore"):
            at = pd.to_datetime(text, dayfirst=is_day, errors="coerce")
        if not pd.isna(at):
            ways.setdefault(at.isoformat(), name)
    named = (
        f'"{at}"' + (f" if it is {name}" if len(ways) > 1 else "") for at, name in ways.items()
    )
    return ": write it as " + ", or as ".join(named) if ways else ""
